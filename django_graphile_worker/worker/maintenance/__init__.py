"""The services that run beside the jobs: heartbeat, recovery, crontab, and checks.

Imports ``sql``, ``crontab``, ``signals``, ``worker.service`` and ``worker.database``, and no other folder of the
worker. Start reading in ``heartbeat.py``, which keeps this worker's lease, and ``recovery.py``, which recovers the
jobs of workers whose lease has expired (``dead_workers.py`` decides which workers are dead). ``cron.py`` adds the jobs
of the crontab, with ``cron_backlog.py`` and ``cron_pending_ticks.py``; ``unserved_tasks.py`` and ``schema_version.py``
report problems that only a person can solve.
"""
