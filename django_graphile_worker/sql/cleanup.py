"""Removing what nobody needs: jobs that failed for good long ago, and names without jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django_graphile_worker.sql.jobs import Cursor
from django_graphile_worker.sql.schema import statement

# An adder holds the names lock, shared, until its transaction ends. A session that waits for it exclusively
# makes every new adder wait behind it, so the wait is short.
NAMES_LOCK_TIMEOUT = "500ms"


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
        from :SCHEMA._private_jobs as job
        where job.locked_at is null
            and job.attempts >= job.max_attempts
            and least(greatest(job.updated_at, job.run_at), now()) <= now() - %s::float8 * interval '1 second'
        for update skip locked
    )
    delete from :SCHEMA._private_jobs as job using failed where job.id = failed.id"""


def delete_failed_jobs(cursor: Cursor, *, older_than: float, schema: str) -> int:
    """Delete permanently failed jobs whose failure is at least so many seconds old."""
    return _count(cursor, statement(DELETE_FAILED_JOBS, schema), [older_than])


TRY_NAMES_LOCK = (
    "/* gw:try_names_lock */ select pg_try_advisory_xact_lock(hashtext('graphile_worker.names'), hashtext(:'SCHEMA'))"
)
SET_LOCK_TIMEOUT = "/* gw:lock_timeout */ select current_setting('lock_timeout'), set_config('lock_timeout', %s, true)"
WAIT_FOR_NAMES_LOCK = (
    "/* gw:names_lock */ select pg_advisory_xact_lock(hashtext('graphile_worker.names'), hashtext(:'SCHEMA'))"
)


def try_names_lock(cursor: Cursor, *, schema: str) -> bool:
    """Take the names lock for this transaction if no job is being added."""
    cursor.execute(statement(TRY_NAMES_LOCK, schema))
    return bool(cursor.fetchone()[0])


def wait_for_names_lock(cursor: Cursor, *, schema: str) -> None:
    """Take the names lock, waiting a moment for those who add jobs; raises a lock timeout after it."""
    cursor.execute(SET_LOCK_TIMEOUT, [NAMES_LOCK_TIMEOUT])
    before = cursor.fetchone()[0]
    cursor.execute(statement(WAIT_FOR_NAMES_LOCK, schema))
    cursor.execute(SET_LOCK_TIMEOUT, [before])


DELETE_UNUSED_QUEUES = """/* gw:delete_unused_queues */
    delete from :SCHEMA._private_job_queues as queue
    where queue.locked_at is null
        and not exists (select from :SCHEMA._private_jobs as job where job.job_queue_id = queue.id)"""


def delete_unused_queues(cursor: Cursor, *, schema: str) -> int:
    """Delete queues without jobs; the caller holds the names lock."""
    return _count(cursor, statement(DELETE_UNUSED_QUEUES, schema), [])


SILENT_WORKERS = """/* gw:silent_workers */
    select exists (
        select from :SCHEMA._private_workers where jsonb_typeof(metadata -> 'tasks') is distinct from 'array'
    )"""

DELETE_UNUSED_TASKS = """/* gw:delete_unused_tasks */
    delete from :SCHEMA._private_tasks as task
    where task.identifier <> all(%s::text[])
        and not exists (select from :SCHEMA._private_jobs as job where job.task_id = task.id)
        and not exists (
            select from :SCHEMA._private_workers as worker where worker.metadata -> 'tasks' ? task.identifier
        )"""


def delete_unused_tasks(cursor: Cursor, *, keep: Iterable[str], schema: str) -> int | None:
    """Delete task names that no job, no live worker and none of `keep` has; the caller holds the names lock.

    Workers know the tasks they run by id, so a name that one of them runs must keep its row. None when there
    is a worker that does not tell which they are.
    """
    cursor.execute(statement(SILENT_WORKERS, schema))
    if cursor.fetchone()[0]:
        return None
    return _count(cursor, statement(DELETE_UNUSED_TASKS, schema), [list(keep)])


EVERYTHING_THAT_HAPPENED = (
    "_private_jobs",
    "_private_job_recoveries",
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
