"""Reads jobs, queues and workers for the admin and the commands of operators. Nothing here changes a row.

``criteria`` describes the jobs of a search, ``index_walks`` finds them along the indexes, ``search`` returns a page of
them, ``counts`` counts them, and ``job_detail`` returns one job with its details. The other modules read queues
(``queue_depths``), holders of locks (``lock_holders``), groups of errors (``error_groups``), the backlog of each task
and the health of the database (``overview``). ``limits`` keeps these statements from slowing down the workers.

Start reading at ``criteria`` and ``index_walks``. Imports from ``sql`` only. A new statement must stay fast with ten
million jobs: walk along an index and end at a limit.
"""

from __future__ import annotations
