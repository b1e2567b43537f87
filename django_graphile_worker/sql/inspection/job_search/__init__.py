"""Finds and counts jobs for lists, as fast with ten million jobs as with few.

``criteria`` describes the jobs of a search. ``walk_choice`` chooses the index to walk along, ``index_walks``,
``level_walks`` and ``priority_walk`` write the walk, ``range_bounds`` says how far a walk along many ranges goes, and
``row_conditions`` has the criteria that no index meets. ``orders`` are the orders of the states, ``sorts`` the orders
that a user chooses. ``search`` returns a page of jobs; if no index has all of them in one order, ``segments`` divides
the list and ``segmented_search`` reads it. ``counts`` counts the jobs of each state, and ``match_counts`` estimates
the number of all.

Start reading at ``criteria`` and ``index_walks``. The folder may import the modules of ``sql`` outside ``inspection``.
"""

from __future__ import annotations
