"""Delete the names of queues and tasks that no job uses, and failed jobs. The names, while jobs are being added.

Who adds a job looks up the ids of its names, and inserts the job with these ids later in the same transaction, which
may end long after that. Between the look-up and the commit, nobody else sees that the names are in use. So:

- ``add_job`` and ``add_jobs`` lock the table of jobs in ROW EXCLUSIVE mode, the lock of every writer, before they look
  up a name. PostgreSQL keeps the lock until the transaction ends, and it is in the way of no other writer.
- The deletion first locks the table in SHARE ROW EXCLUSIVE mode, which conflicts with that. When it has the lock, each
  transaction that has looked up a name has ended, so its jobs are visible to the statement that deletes. Whoever looks
  up a name later waits for the deletion first, and then does not find the name, and makes it again. A transaction with
  one snapshot for all its statements may still find it: such transactions offer their names again, see
  ``_private_task_ids``.

While a session waits for this lock or holds it, all who write jobs wait behind it, workers too. So it waits for a
moment only, tries again later, and deletes a few names at a time. VACUUM of the table holds a lock that conflicts, too.
Under the lock there is no time to read all jobs:

1. Under the lock, take the `Watermark`: every job that is inserted later has a higher id.
2. Without the lock, look for names that no job uses. This reads all jobs and may take long.
3. Under the lock, delete some of the found names, except names that are used by jobs above the watermark, or by jobs
   with a key: a job that waits under a key may have got another task or queue meanwhile.

If there are so many jobs with a key that reading them takes longer than ``SETTINGS`` permit, the names stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django_graphile_worker.sql.codecs import int_array
from django_graphile_worker.sql.jobs import IS_PERMANENTLY_FAILED
from django_graphile_worker.sql.statements import Cursor, qualified, statement

# How many names one search finds, and how many are deleted while the lock is held.
MAX_FOUND = 100_000
MAX_DELETED = 2_000

# For how long others may wait behind a session that waits for the lock, and behind one that holds it. Under the lock
# every plan must read a few rows by an index, whatever the statistics are.
# Without scans of tables some plans look expensive, and the server would compile them for longer than that.
SETTINGS = {"lock_timeout": "50ms", "statement_timeout": "200ms", "enable_seqscan": "off", "jit": "off"}

ISOLATION = "/* gw:isolation */ select current_setting('transaction_isolation')"
READ_COMMITTED = "/* gw:isolation */ set transaction isolation level read committed"


def sees_commits(cursor: Cursor) -> bool:
    """Return True if the statements of this transaction see commits of other transactions.

    With one snapshot for all its statements, a name that a job has used since then would look unused.
    """
    cursor.execute(qualified(ISOLATION))
    return bool(cursor.fetchone()[0] == "read committed")


def begin_read_committed(cursor: Cursor) -> None:
    """Set the isolation level; must be the first statement of the caller's own transaction."""
    cursor.execute(READ_COMMITTED)


LOCK_JOBS = "/* gw:lock_jobs */ lock table only :SCHEMA._private_jobs in share row exclusive mode"


def lock_jobs(cursor: Cursor, *, schema: str) -> None:
    """Wait for all transactions that have written jobs, and let no other write any until this transaction ends."""
    cursor.execute(statement(LOCK_JOBS, schema))


class Watermark(NamedTuple):
    """The highest id of a job, and the time."""

    job_id: int
    at: datetime


WATERMARK = """/* gw:watermark */
select coalesce(pg_sequence_last_value(':SCHEMA.jobs_id_seq1'::regclass), 0), clock_timestamp()"""


def watermark(cursor: Cursor, *, schema: str) -> Watermark:
    """Return the watermark: jobs that are inserted later have a higher id. The caller holds the lock."""
    cursor.execute(statement(WATERMARK, schema))
    return Watermark._make(cursor.fetchone())


UNUSED_QUEUES = """/* gw:unused_queues */
select id from :SCHEMA._private_job_queues where id > %(after)s::int and locked_at is null
except
select job_queue_id from :SCHEMA._private_jobs where job_queue_id is not null
order by id limit %(most)s::int"""

UNUSED_TASKS = """/* gw:unused_tasks */
select id from :SCHEMA._private_tasks where id > %(after)s::int and identifier <> all (%(keep)s::text[])
except
select task_id from :SCHEMA._private_jobs
order by id limit %(most)s::int"""


def find_unused_queues(cursor: Cursor, *, schema: str, after: int) -> list[int]:
    """Return the ids of the next queues without jobs, in order."""
    cursor.execute(statement(UNUSED_QUEUES, schema), {"after": after, "most": MAX_FOUND})
    return [row[0] for row in cursor.fetchall()]


def find_unused_tasks(cursor: Cursor, *, schema: str, after: int, keep: Sequence[str]) -> list[int]:
    """Return the ids of the next task names that no job has and that are not in ``keep``, in order."""
    cursor.execute(statement(UNUSED_TASKS, schema), {"after": after, "most": MAX_FOUND, "keep": list(keep)})
    return [row[0] for row in cursor.fetchall()]


# Jobs that may have got other names since the watermark: those that are new, those that have a key, and those that may
# have lost it since, because a worker holds them or because they have failed. When a job failed is when the transaction
# began that failed it; none is as long as that margin.
_CHANGED = """
    select job.{column} from :SCHEMA._private_jobs as job where job.id > %(job_id)s::bigint
    union
    select job.{column} from :SCHEMA._private_jobs as job where job.key is not null
    union
    select job.{column} from :SCHEMA._private_jobs as job where job.locked_at is not null
    union
    select failed.{column} from :SCHEMA._private_tasks as task
    cross join lateral (
        select job.{column} from :SCHEMA._private_jobs as job
        where job.task_id = task.id and job.locked_at is null and job.attempts > 0 and not job.is_available
            and job.updated_at >= %(at)s::timestamptz - interval '1 hour'
    ) as failed"""

# A row that somebody has locked is in use, and waiting for it would keep others waiting.
DELETE_QUEUES = f"""/* gw:delete_queues */
with used as materialized ({_CHANGED.format(column="job_queue_id")}
), unused as materialized (
    select queue.id from only :SCHEMA._private_job_queues as queue
    where queue.id = any (%(ids)s::int[]) and queue.locked_at is null
        and not exists (select from used where used.job_queue_id = queue.id)
    for update skip locked
)
delete from only :SCHEMA._private_job_queues as queue using unused where queue.id = unused.id"""

# A worker refers to its tasks by id, so their names must stay. The caller has read the tasks of the registered workers
# before the search; the tasks of workers that registered since then, or a moment before, are kept here. The lock lets
# no worker register meanwhile: it registers first, and then reads the ids.
LOCK_WORKERS = "/* gw:lock_workers */ lock table only :SCHEMA._private_workers in share mode"
DELETE_TASKS = f"""/* gw:delete_tasks */
with used as materialized ({_CHANGED.format(column="task_id")}
), unused as materialized (
    select task.id from only :SCHEMA._private_tasks as task
    where task.id = any (%(ids)s::int[])
        and not exists (select from used where used.task_id = task.id)
        and not exists (
            select from :SCHEMA._private_workers as worker
            where worker.started_at > %(at)s::timestamptz - interval '1 minute'
                and worker.metadata -> 'tasks' ? task.identifier)
    for update skip locked
)
delete from only :SCHEMA._private_tasks as task using unused where task.id = unused.id"""


def delete_queues(cursor: Cursor, ids: Iterable[int], since: Watermark, *, schema: str) -> int:
    """Delete the queues that still have no job; return how many. The caller holds the lock."""
    parameters = {"ids": int_array(ids), "job_id": since.job_id, "at": since.at}
    cursor.execute(statement(DELETE_QUEUES, schema), parameters)
    return max(cursor.rowcount, 0)


def delete_tasks(cursor: Cursor, ids: Iterable[int], since: Watermark, *, schema: str) -> int:
    """Delete the task names that still have no job and no new worker; return how many. The caller holds the lock."""
    parameters = {"ids": int_array(ids), "job_id": since.job_id, "at": since.at}
    cursor.execute(statement(LOCK_WORKERS, schema))
    cursor.execute(statement(DELETE_TASKS, schema), parameters)
    return max(cursor.rowcount, 0)


SILENT_WORKERS = """/* gw:silent_workers */
select exists (
    select from :SCHEMA._private_workers where jsonb_typeof(metadata -> 'tasks') is distinct from 'array')"""


def has_silent_workers(cursor: Cursor, *, schema: str) -> bool:
    """Return True if there is a registered worker that does not list its tasks."""
    cursor.execute(statement(SILENT_WORKERS, schema))
    return bool(cursor.fetchone()[0])


# How many failed jobs one statement deletes.
MAX_FAILED_DELETED = 10_000


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
    return _count(cursor, statement(DELETE_FAILED_JOBS, schema), [older_than, MAX_FAILED_DELETED])


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
    "_private_alerts",
    "_private_actions",
    "_private_action_steps",
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
