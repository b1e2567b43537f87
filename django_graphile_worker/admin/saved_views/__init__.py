"""Views of the list of jobs that users have saved: a name for a search, a state, an order and columns.

Start with ``saved_views.py``, which reads and changes them. ``saved_view_links`` makes the links above the list, and
``saved_view_form`` is the form. The page itself is in ``jobs/job_list/saved_views_view.py``. The package may import
``models`` and what all pages share.
"""
