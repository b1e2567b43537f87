"""The services that run beside the jobs: heartbeat, recovery, and checks.

Start reading in ``heartbeat.py``, which keeps this worker's lease, and ``recovery.py``, which recovers the jobs of
workers whose lease has expired. ``retention.py`` deletes what has expired, ``regular_checks.py`` looks for what only a
person can solve.
"""
