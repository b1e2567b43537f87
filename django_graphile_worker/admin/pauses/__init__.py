"""The page that pauses and resumes queues, tasks and flags.

Start reading with ``pause_admin``. The folder imports what the other pages import, and ``admin.jobs.forms``. The notice
about pauses on every page is ``admin.pause_notice``.
"""
