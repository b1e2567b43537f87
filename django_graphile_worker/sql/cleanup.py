"""Removing what nobody needs: jobs that failed for good long ago, and names without jobs."""

from __future__ import annotations

from dataclasses import dataclass

from django_graphile_worker.sql.jobs import Cursor
from django_graphile_worker.sql.schema import statement

# How many failed jobs are deleted by one statement.
MOST_DELETED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupResult:
    """How many rows a cleanup deleted.

    `is_complete` is False when names were left alone because jobs were being added all the time, or because
    a live worker does not tell its tasks.
    """

    jobs: int = 0
    queues: int = 0
    tasks: int = 0
    is_complete: bool = True


# The time of the last failure is not stored. A job that failed was to be tried again at run_at, a little
# later than that; one that was failed or cancelled by hand has it in updated_at.
DELETE_FAILED_JOBS = """/* gw:delete_failed_jobs */
    with failed as materialized (
        select job.id
        from only :SCHEMA._private_jobs as job
        where job.locked_at is null
            and job.attempts > 0
            and not job.is_available
            and least(greatest(job.updated_at, job.run_at), now()) <= now() - %s::float8 * interval '1 second'
        limit %s::int
        for update skip locked
    )
    delete from only :SCHEMA._private_jobs as job using failed where job.id = failed.id"""


def delete_failed_jobs(cursor: Cursor, *, older_than: float, schema: str) -> int:
    """Delete some of the permanently failed jobs whose failure is at least so many seconds old."""
    return _count(cursor, statement(DELETE_FAILED_JOBS, schema), [older_than, MOST_DELETED])


EVERYTHING_THAT_HAPPENED = (
    "_private_jobs",
    "_private_job_recoveries",
    "_private_cancellations",
    "_private_job_queues",
    "_private_known_crontabs",
    "_private_workers",
    "_private_statistics",
)


def delete_everything(cursor: Cursor, *, schema: str) -> int:
    """Delete all rows but task names and what says that the schema is installed; the number of jobs among them.

    The caller holds the names lock.
    """
    deleted = [
        _count(cursor, statement(f"/* gw:delete_everything */ delete from :SCHEMA.{table}", schema), [])
        for table in EVERYTHING_THAT_HAPPENED
    ]
    return deleted[0]


def _count(cursor: Cursor, text: str, parameters: list[object]) -> int:
    cursor.execute(text, parameters)
    return max(cursor.rowcount, 0)
