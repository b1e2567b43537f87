"""Conditions that several statements share: each is written here and nowhere else.

The conditions refer to a row that the statement calls ``job`` or ``worker``. The statements that every job needs are
functions in the files of ``ddl``, which have their own conditions.

A partial index serves only statements that repeat its condition. So the conditions include ``job.attempts > 0`` and
``job.locked_at is null`` even where these follow from the rest: the index of failed jobs has both.
"""

from __future__ import annotations

# A worker holds the job.
IS_LOCKED = "job.locked_at is not null"
IS_DUE = "job.run_at <= now()"
# The column is_available is true if no worker holds the job and it has attempts left.
IS_READY = f"job.is_available and {IS_DUE}"
# A job that waits for a limit is parked at infinity: `sql.parked_jobs`. While there are such jobs, waiting jobs end
# before infinity: a bound that an index can use, as a list must not read all parked jobs.
_END_OF_WAITING = """(select case when exists (select from :SCHEMA._private_limited_jobs)
    then timestamptz '294276-12-31 23:59:59+00' else 'infinity' end)"""
IS_WAITING = f"job.is_available and job.run_at > now() and job.run_at <= {_END_OF_WAITING}"
IS_PARKED = "job.is_available and job.run_at = 'infinity'"
IS_AVAILABLE_IN_QUEUE = "job.is_available and job.job_queue_id is not null"
# The job was tried, and no worker holds it: it failed.
HAS_FAILED = "job.locked_at is null and job.attempts > 0"
IS_RETRYING = f"{HAS_FAILED} and {IS_WAITING}"
IS_PERMANENTLY_FAILED = f"{HAS_FAILED} and not job.is_available"
NOT_TRIED = "job.attempts = 0"

# The worker has registered a heartbeat within the parameter timeout, in seconds.
IS_ALIVE = "worker.last_heartbeat_at >= now() - interval '1 second' * %(timeout)s::float8"
