"""Keeps a worker, the other workers and the schedule in order, beside the running of jobs.

Imports ``sql``, ``crontab``, ``signals``, ``worker.service`` and ``worker.database``, and no other folder of the
worker. Start reading in ``heartbeat.py``, which keeps this worker's lease, and ``recovery.py``, which recovers the
jobs of workers whose lease is over (``dead_workers.py`` says which those are). ``cron.py`` adds the jobs of the
crontab, with ``cron_backlog.py`` and ``cron_pending_ticks.py``; ``unserved_tasks.py`` and ``schema_version.py`` report
what a person has to repair.
"""
