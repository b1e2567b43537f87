"""Delete the names of queues and tasks that no job uses, while jobs are being added.

A transaction that adds a job holds a shared lock, from before it looks up its names until it ends: it reads the table
`_private_names_lock`. A session that locks that table exclusively waits for every such transaction, and meanwhile every
other transaction that adds a job waits, too. So the exclusive lock is held for short moments only:

1. Under the lock, take the `Watermark`: every job that is added later has a higher id.
2. Without the lock, look for names that no job uses. This reads all jobs and may take long.
3. Under the lock, delete some of the found names, except names that jobs above the watermark use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from django_graphile_worker.sql.codecs import int_array
from django_graphile_worker.sql.schema import statement
from django_graphile_worker.sql.search_path import qualified

if TYPE_CHECKING:
    from django_graphile_worker.sql.cursor import Cursor

# For how long a transaction that adds a job may wait behind a session that waits for the lock.
LOCK_TIMEOUT = "50ms"
# How many names one search finds, and how many are deleted while the lock is held.
MOST_FOUND = 100_000
MOST_DELETED = 2_000

# Under the lock every plan must read a few rows by an index, whatever the statistics are.
SETTINGS = {"lock_timeout": LOCK_TIMEOUT, "enable_seqscan": "off"}

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


LOCK_NAMES = "/* gw:names_lock */ lock table :SCHEMA._private_names_lock in access exclusive mode"


def lock_names(cursor: Cursor, *, schema: str) -> None:
    """Wait for all transactions that are adding jobs, and let no other add jobs until this transaction ends."""
    cursor.execute(statement(LOCK_NAMES, schema))


# Transactions that called the add_job of an earlier version hold an advisory lock instead. Any role can take such a
# lock, so it counts only if the same session has written jobs.
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
    """Return True if a transaction is adding jobs that began before the migration that made ``_private_names_lock``."""
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
    """Return the watermark: jobs that are added later have a higher id. The caller holds the lock."""
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
    cursor.execute(statement(UNUSED_QUEUES, schema), {"after": after, "most": MOST_FOUND})
    return [row[0] for row in cursor.fetchall()]


def find_unused_tasks(cursor: Cursor, *, schema: str, after: int, keep: Sequence[str]) -> list[int]:
    """Return the ids of the next task names that no job has and that are not in ``keep``, in order."""
    cursor.execute(statement(UNUSED_TASKS, schema), {"after": after, "most": MOST_FOUND, "keep": list(keep)})
    return [row[0] for row in cursor.fetchall()]


DELETE_QUEUES = """/* gw:delete_queues */
with later as materialized (
    select distinct job_queue_id from :SCHEMA._private_jobs where id > %(job_id)s::bigint and job_queue_id is not null)
delete from only :SCHEMA._private_job_queues as queue
where queue.id = any (%(ids)s::int[]) and queue.locked_at is null
    and not exists (select from later where later.job_queue_id = queue.id)"""

# A worker refers to its tasks by id, so their names must stay. The caller has read the tasks of the registered workers
# before the search; the tasks of workers that registered since then, or a moment before, are kept here.
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
    """Delete the queues that still have no job; return how many. The caller holds the lock."""
    cursor.execute(statement(DELETE_QUEUES, schema), {"ids": int_array(ids), "job_id": since.job_id})
    return max(cursor.rowcount, 0)


def delete_tasks(cursor: Cursor, ids: Iterable[int], since: Watermark, *, schema: str) -> int:
    """Delete the task names that still have no job and no new worker; return how many. The caller holds the lock."""
    parameters = {"ids": int_array(ids), "job_id": since.job_id, "at": since.at}
    cursor.execute(statement(DELETE_TASKS, schema), parameters)
    return max(cursor.rowcount, 0)


SILENT_WORKERS = """/* gw:silent_workers */
select exists (
    select from :SCHEMA._private_workers where jsonb_typeof(metadata -> 'tasks') is distinct from 'array')"""


def has_silent_workers(cursor: Cursor, *, schema: str) -> bool:
    """Return True if there is a registered worker that does not list its tasks."""
    cursor.execute(statement(SILENT_WORKERS, schema))
    return bool(cursor.fetchone()[0])
