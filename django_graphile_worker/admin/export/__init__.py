"""Files of what a list shows, as CSV or JSON, written while the rows are read: any number takes little memory.

Start with ``file_response.py``. ``file_formats`` writes rows as text, ``exported_jobs`` and ``exported_attempts`` read
them step by step. The views are in ``jobs/job_list/export_view.py`` and ``history/history_page.py``. The package may
import ``sql`` and what all pages share, but no page.
"""
