"""Deleting names of queues and tasks that no job uses, while jobs are being added.

A transaction that adds a job holds a lock, shared, from before it looks up its names until it ends: it reads the table
`_private_names_lock`. To lock that table exclusively is to wait for every such transaction; who adds a job meanwhile
waits too. So the lock is held for short moments only:

1. Under the lock, take the `Watermark`: every job that is added later has a higher id.
2. Without the lock, look for names that no job uses. This reads all jobs and takes as long as it takes.
3. Under the lock, delete some of the names that were found, but for those that jobs above the watermark use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from django_graphile_worker.sql.arrays import int_array
from django_graphile_worker.sql.jobs import Cursor
from django_graphile_worker.sql.qualification import qualified
from django_graphile_worker.sql.schema import statement

# How long an adder may have to wait behind a session that waits for the lock.
LOCK_TIMEOUT = "50ms"
# How many names are looked for at once, and how many are deleted while the lock is held.
MOST_FOUND = 100_000
MOST_DELETED = 2_000

# The plans under the lock read a few rows by an index, whatever the statistics say.
SETTINGS = {"lock_timeout": LOCK_TIMEOUT, "enable_seqscan": "off"}

ISOLATION = "/* gw:isolation */ select current_setting('transaction_isolation')"
READ_COMMITTED = "/* gw:isolation */ set transaction isolation level read committed"


def sees_commits(cursor: Cursor) -> bool:
    """Whether this transaction sees what others commit; with one snapshot for all, used names look unused."""
    cursor.execute(qualified(ISOLATION))
    return bool(cursor.fetchone()[0] == "read committed")


def begin_read_committed(cursor: Cursor) -> None:
    """The first statement of a transaction of one's own, whatever the session's isolation level is."""
    cursor.execute(READ_COMMITTED)


LOCK_NAMES = "/* gw:names_lock */ lock table :SCHEMA._private_names_lock in access exclusive mode"


def lock_names(cursor: Cursor, *, schema: str) -> None:
    """Wait for everybody who is adding jobs, and keep others from it until the transaction ends."""
    cursor.execute(statement(LOCK_NAMES, schema))


# Transactions that called the add_job of an earlier version hold an advisory lock instead. Any role can take that, so
# it counts only where the same session has written jobs.
OLD_ADDERS = """/* gw:old_adders */
select exists (
    select from pg_locks as names
    join pg_locks as jobs on jobs.pid = names.pid
    where names.locktype = 'advisory' and names.mode = 'ShareLock'
        and names.database = jobs.database
        and names.classid::bigint = hashtext('graphile_worker.names')::bigint & 4294967295
        and names.objid::bigint = hashtext(:'SCHEMA')::bigint & 4294967295
        and jobs.relation = ':SCHEMA._private_jobs'::regclass::oid and jobs.mode = 'RowExclusiveLock'
        and names.pid <> pg_backend_pid())"""


def has_old_adders(cursor: Cursor, *, schema: str) -> bool:
    """Whether somebody is adding jobs who began before the migration that brought the table to lock."""
    cursor.execute(statement(OLD_ADDERS, schema))
    return bool(cursor.fetchone()[0])


class Watermark(NamedTuple):
    """The highest id of a job, how many jobs have been replaced under other names, and the time."""

    job_id: int
    moved: int
    at: datetime


WATERMARK = """/* gw:watermark */
select coalesce(pg_sequence_last_value(':SCHEMA.jobs_id_seq1'::regclass), 0),
    coalesce(pg_sequence_last_value(':SCHEMA._private_moved_jobs'::regclass), 0), clock_timestamp()"""


def watermark(cursor: Cursor, *, schema: str) -> Watermark:
    """Where to look for jobs that came later; the caller holds the lock."""
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
    """The next queues without jobs, by id."""
    cursor.execute(statement(UNUSED_QUEUES, schema), {"after": after, "most": MOST_FOUND})
    return [row[0] for row in cursor.fetchall()]


def find_unused_tasks(cursor: Cursor, *, schema: str, after: int, keep: Sequence[str]) -> list[int]:
    """The next task names, by id, that no job and none of `keep` has."""
    cursor.execute(statement(UNUSED_TASKS, schema), {"after": after, "most": MOST_FOUND, "keep": list(keep)})
    return [row[0] for row in cursor.fetchall()]


DELETE_QUEUES = """/* gw:delete_queues */
with later as materialized (
    select distinct job_queue_id from :SCHEMA._private_jobs where id > %(job_id)s::bigint and job_queue_id is not null)
delete from only :SCHEMA._private_job_queues as queue
where queue.id = any (%(ids)s::int[]) and queue.locked_at is null
    and not exists (select from later where later.job_queue_id = queue.id)"""

# A worker knows the tasks it runs by id. It registers their names first and itself a moment later.
DELETE_TASKS = """/* gw:delete_tasks */
with later as materialized (
    select distinct task_id from :SCHEMA._private_jobs where id > %(job_id)s::bigint)
delete from only :SCHEMA._private_tasks as task
where task.id = any (%(ids)s::int[])
    and not exists (select from later where later.task_id = task.id)
    and not exists (
        select from :SCHEMA._private_workers as worker
        where worker.started_at > %(at)s::timestamptz - interval '1 minute'
            and worker.metadata -> 'tasks' ? task.identifier)"""


def delete_queues(cursor: Cursor, ids: Iterable[int], since: Watermark, *, schema: str) -> int:
    """Delete those of the queues that still have no job; the caller holds the lock."""
    cursor.execute(statement(DELETE_QUEUES, schema), {"ids": int_array(ids), "job_id": since.job_id})
    return max(cursor.rowcount, 0)


def delete_tasks(cursor: Cursor, ids: Iterable[int], since: Watermark, *, schema: str) -> int:
    """Delete those of the task names that still have no job and no new worker; the caller holds the lock."""
    parameters = {"ids": int_array(ids), "job_id": since.job_id, "at": since.at}
    cursor.execute(statement(DELETE_TASKS, schema), parameters)
    return max(cursor.rowcount, 0)


SILENT_WORKERS = """/* gw:silent_workers */
select exists (
    select from :SCHEMA._private_workers where jsonb_typeof(metadata -> 'tasks') is distinct from 'array')"""


def has_silent_workers(cursor: Cursor, *, schema: str) -> bool:
    """Whether there is a worker that does not tell which tasks it runs."""
    cursor.execute(statement(SILENT_WORKERS, schema))
    return bool(cursor.fetchone()[0])
