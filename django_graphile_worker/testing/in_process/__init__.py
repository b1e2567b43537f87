"""The worker that runs jobs inside a test: without threads, on the connection of the test, one job at a time.

May import every folder below ``testing``, and of ``testing`` only the values that ``run_jobs()`` returns
(``ran_jobs.py``). Start reading in ``in_process_worker.py``. It claims with ``single_claims.py``, runs with
``recording_executor.py``, and its statements go through ``caller_database.py``. A job finds the connection of the test
as if it were in autocommit mode (``virtual_autocommit.py``). ``idle_workers.py`` keeps workers between two calls.
"""
