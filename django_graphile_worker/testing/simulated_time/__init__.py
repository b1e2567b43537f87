"""The time that passes while jobs run under the clock of a test.

``timelines.py`` moves the clock from job to job while ``run_jobs()`` runs, and ``ticks.py`` fires recurring tasks
on the way.
"""
