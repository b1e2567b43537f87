"""The clock that a test moves, and the time that passes while jobs run.

Start reading in ``simulated_clock.py``, which has ``clock()``. ``timelines.py`` moves it from job to job while
``run_jobs()`` runs, and ``cron_ticks.py`` fires recurring tasks on the way. May import ``in_process``.
"""
