"""Reports what a worker does: signals for the site's receivers, counts for the dashboard, and the progress of tasks.

``reports.py`` sends the signals, and reports to Django's tasks framework how its tasks ended. ``statistics.py`` counts
outcomes, and ``progress_writer.py`` writes the progress of jobs that run.
"""
