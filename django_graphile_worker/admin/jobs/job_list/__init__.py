"""The list of jobs: its search, its options, its pages and rows, its file, and the views of it that users save.

Start with ``list_view`` (tabs, permissions), which extends ``search_view`` (the search and its completion).
``list_options`` reads the order and the columns, ``pagination`` a page of jobs, and ``list_totals`` how many there are;
``job_rows`` and ``payload_preview`` are what a row shows. ``export_view`` and ``saved_views_view`` extend the list. The
folder may import ``actions`` and the modules beside it in ``admin/jobs``, but no other page of jobs.
"""

from __future__ import annotations
