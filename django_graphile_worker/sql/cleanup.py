"""Delete jobs that permanently failed long ago, and for tests all jobs; ``unused_names`` deletes names without jobs."""

from __future__ import annotations

from dataclasses import dataclass

from django_graphile_worker.sql.conditions import IS_PERMANENTLY_FAILED
from django_graphile_worker.sql.statements import Cursor, statement

# How many failed jobs one statement deletes.
MOST_DELETED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupResult:
    """How many rows a cleanup deleted.

    `is_complete` is False if names were kept because jobs were being added all the time, or because a registered worker
    does not list its tasks.
    """

    jobs: int = 0
    queues: int = 0
    tasks: int = 0
    is_complete: bool = True


# The time of the last failure is not stored. For a job that failed by itself, run_at is the time of the next attempt,
# a little later than the failure; for a job that an operator failed or cancelled, updated_at is that time.
DELETE_FAILED_JOBS = f"""/* gw:delete_failed_jobs */
    with failed as materialized (
        select job.id
        from only :SCHEMA._private_jobs as job
        where {IS_PERMANENTLY_FAILED}
            and least(greatest(job.updated_at, job.run_at), now()) <= now() - %s::float8 * interval '1 second'
        limit %s::int
        for update skip locked
    )
    delete from only :SCHEMA._private_jobs as job using failed where job.id = failed.id"""


def delete_failed_jobs(cursor: Cursor, *, older_than: float, schema: str) -> int:
    """Delete some of the jobs that permanently failed at least this many seconds ago; return how many."""
    return _count(cursor, statement(DELETE_FAILED_JOBS, schema), [older_than, MOST_DELETED])


EMPTIED_TABLES = (
    "_private_jobs",
    "_private_unique_jobs",
    "_private_job_recoveries",
    "_private_cancellations",
    "_private_stop_requests",
    "_private_job_queues",
    "_private_known_crontabs",
    "_private_paused_crontabs",
    "_private_workers",
    "_private_statistics",
    "_private_statistics_pending",
    "_private_backlog_samples",
    "_private_results",
    "_private_waiters",
    "_private_history",
    "_private_progress",
    "_private_limit_overrides",
    "_private_limited_jobs",
    "_private_limit_places",
    "_private_limit_starts",
    "_private_limit_lanes",
    "_private_limit_lane_keys",
    "_private_limit_keys",
    "_private_pauses",
    "_private_events",
    "_private_actions",
    "_private_action_steps",
    "_private_saved_views",
    "_private_schedules",
    "_private_schedule_runs",
    "_private_schedule_changes",
)


def delete_everything(cursor: Cursor, *, schema: str) -> int:
    """Delete all rows except task names and the record of the installation; return the number of jobs.

    The caller has locked the table of jobs.
    """
    deleted = [
        _count(cursor, statement(f"/* gw:delete_everything */ delete from :SCHEMA.{table}", schema), [])
        for table in EMPTIED_TABLES
    ]
    return deleted[0]


def _count(cursor: Cursor, text: str, parameters: list[object]) -> int:
    cursor.execute(text, parameters)
    return max(cursor.rowcount, 0)
