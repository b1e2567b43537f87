"""Helpers that tests share.

Databases: ``database_server`` (the server of the suite), ``emptying`` (empty tables for the next test),
``versioned_servers`` (one server for each PostgreSQL version, as fixtures), ``postgres_versions`` (where the programs
of each version are), ``prerequisites`` and ``install_prerequisites`` (what this machine has, and
``make prerequisites``).

Rows: ``factories`` (jobs in any state), ``rows`` (reading them back), ``recorded_statistics`` (counts for the
dashboard), ``records`` (results and history), ``limits`` (keys, parked jobs and places), ``worker_sql`` (the SQL
functions, called directly).

The worker: ``slot`` (one job run by an executor, without a worker), ``stepped_worker`` (a worker whose parts the test
steps), ``backends`` (the server process behind a connection), ``log_lines`` (signals as a worker sends them),
``console_log`` (the log on standard error), ``operating`` (the operator command).

The admin: ``admin_pages`` (addresses, texts and actions of its pages).

Crontabs: ``cron_world`` (the crontab with a clock that the test sets), ``crontabs`` (Hypothesis strategies, and the
rules of patterns implemented a second time).

Schedules: ``schedules`` (Hypothesis strategies, and their ticks computed a second time), ``celery_beat`` (the real
django-celery-beat in simulated time) and ``celery_beat_rows`` (200 of its rows).

Measurements and attacks: ``buffers`` (what a statement reads), ``interleaving`` (several sessions step by step),
``planted`` (look-alikes of the functions and operators that our SQL names).
"""
