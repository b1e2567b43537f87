"""Is it healthy? The figures of the dashboard that are not in the statistics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from django_graphile_worker.sql.inspection.index_walks import MOST_LEVELS, MOST_TASKS, PARTS
from django_graphile_worker.sql.qualification import qualified
from django_graphile_worker.sql.schema import statement

# Of each kind of jobs in each task.
MOST_COUNTED = 200


def _per_level(condition: str) -> str:
    """The due jobs of one kind: on each level of priority, a range that ends with the present."""
    return f"""
        select level.priority, job.run_at from (
            with recursive level (priority) as (
                (select job.priority from :SCHEMA._private_jobs as job
                where job.task_id = task.id and {condition} order by job.priority, job.run_at, job.id limit 1)
                union all
                select (select job.priority from :SCHEMA._private_jobs as job
                    where job.task_id = task.id and {condition} and job.priority > level.priority
                    order by job.priority, job.run_at, job.id limit 1)
                from level where level.priority is not null)
            select priority from level where priority is not null limit {MOST_LEVELS}) as level
        cross join lateral (
            select job.run_at from :SCHEMA._private_jobs as job
            where job.task_id = task.id and {condition} and job.priority = level.priority and job.run_at <= now()
            order by job.run_at, job.id limit %(most)s) as job"""


BACKLOG = f"""/* gw:task-backlog */
select task.identifier, ready.number, extract(epoch from now() - ready.oldest)::float8,
    failing.retrying, failing.failed
from (
    select id, identifier from :SCHEMA._private_tasks
    where (%(tasks)s::text[] is null or identifier = any (%(tasks)s::text[]))
        and not identifier = any (%(others)s::text[])
    order by id limit {MOST_TASKS}) as task
cross join lateral (
    select count(*) as number, min(greatest(run_at, '0001-01-02')) as oldest
    from ({" union all ".join(f"({_per_level(condition)} limit %(most_of_part)s)" for condition in PARTS.values())})
        as job
) as ready
cross join lateral (
    select count(*) filter (where is_available) as retrying, count(*) filter (where not is_available) as failed
    from ((select true as is_available from :SCHEMA._private_jobs as job
        where job.task_id = task.id and job.locked_at is null and job.attempts > 0 and job.is_available
            and job.run_at > now()
        order by job.run_at, job.id limit %(most)s)
        union all
        (select false from :SCHEMA._private_jobs as job
        where job.task_id = task.id and job.locked_at is null and job.attempts > 0 and not job.is_available
        order by job.run_at, job.id limit %(most)s)) as job
) as failing"""


class TaskBacklog(NamedTuple):
    """What waits for one task; numbers are at most one more than is counted, and in a glance none is counted."""

    task_identifier: str
    ready: int
    oldest_seconds: float | None
    retrying: int
    failed: int


def glance_at_backlogs(cursor: Any, *, schema: str, but: Iterable[str] = ()) -> list[TaskBacklog]:
    """Which tasks, but for some, have something waiting, and since when: the first of each kind of jobs is read."""
    return _backlogs(cursor, {"tasks": None, "others": list(but), "most": 1, "most_of_part": MOST_LEVELS}, schema)


def task_backlogs(cursor: Any, tasks: Iterable[str] | None = None, *, schema: str) -> list[TaskBacklog]:
    """How much waits for each of these tasks, or for each there is."""
    chosen, most = None if tasks is None else list(tasks), MOST_COUNTED + 1
    return _backlogs(cursor, {"tasks": chosen, "others": [], "most": most, "most_of_part": most}, schema)


def _backlogs(cursor: Any, parameters: dict[str, Any], schema: str) -> list[TaskBacklog]:
    cursor.execute(statement(BACKLOG, schema), parameters)
    return [TaskBacklog._make(row) for row in cursor.fetchall()]


# Whoever may not see others' sessions sees their age all the same; reltuples is what the last vacuum counted.
HEALTH = """/* gw:health */
select extract(epoch from now())::float8, pg_notification_queue_usage(),
    extract(epoch from now() - oldest_transaction.xact_start)::float8, oldest_transaction.pid,
    oldest_transaction.application_name, size.estimate, size.bytes, coalesce(dead.n_dead_tup, 0),
    (select extract(epoch from now() - min(locked_at))::float8
    from :SCHEMA._private_jobs where locked_at is not null and not exists (
        select from :SCHEMA._private_workers as worker where worker.id = :SCHEMA._private_worker_of(locked_by)))
from (
    select greatest(reltuples, 0)::bigint as estimate, pg_total_relation_size(oid) as bytes, oid
    from pg_class where oid = ':SCHEMA._private_jobs'::regclass::oid) as size
left join pg_stat_user_tables as dead on dead.relid = size.oid
left join lateral (
    select xact_start, pid, application_name from pg_stat_activity
    where backend_xmin is not null and xact_start is not null and datname = current_database()
        and pid <> pg_backend_pid()
    order by xact_start limit 1) as oldest_transaction on true"""


NOTIFY_QUEUE_USAGE = "/* gw:notify_queue_usage */ select pg_notification_queue_usage()"


def notify_queue_usage(cursor: Any) -> float:
    """How full the server's queue of notifications is, from 0 to 1."""
    cursor.execute(qualified(NOTIFY_QUEUE_USAGE))
    return float(cursor.fetchone()[0])


class Health(NamedTuple):
    """The database around the queue."""

    now: float
    notify_queue_usage: float
    oldest_transaction_seconds: float | None
    oldest_transaction_pid: int | None
    oldest_transaction_application: str | None
    estimated_jobs: int
    table_bytes: int
    dead_rows: int
    oldest_stranger_lock_seconds: float | None


def health(cursor: Any, *, schema: str) -> Health:
    """What goes on around the queue."""
    cursor.execute(statement(HEALTH, schema))
    return Health._make(cursor.fetchone())
