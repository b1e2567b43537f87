"""Reports what a worker does: signals for the site's receivers, counts for the dashboard, and the progress of tasks.

Start reading in ``events.py``, whose signals ``signal_sender.py`` sends. ``statistics.py`` counts outcomes,
``progress_writer.py`` writes the progress of jobs that run, and ``task_reports.py`` tells Django's tasks framework how
its tasks ended.
"""
