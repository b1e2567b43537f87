"""Figures of the dashboard that are not in the statistics: the backlog of each task, and the database's health."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from django_graphile_worker.sql.inspection.job_search.level_walks import MOST_LEVELS, MOST_TASKS, PARTS
from django_graphile_worker.sql.jobs import IS_DUE, IS_PERMANENTLY_FAILED, IS_RETRYING
from django_graphile_worker.sql.statements import qualified, statement

# How many jobs of each kind are counted for each task.
MOST_COUNTED = 200


def _levels(condition: str) -> str:
    """Return the select of the first job on each level of priority, of one kind."""
    first = f"""select job.priority, job.run_at from :SCHEMA._private_jobs as job
                where job.task_id = task.id and {condition}"""
    order = "order by job.priority, job.run_at, job.id limit 1"
    return f"""
        select level.priority, level.run_at from (
            with recursive level (priority, run_at) as (
                ({first} {order})
                union all
                select further.* from level
                cross join lateral ({first} and job.priority > level.priority {order}) as further)
            select * from level limit {MOST_LEVELS}) as level"""


def _due(condition: str) -> str:
    """Return the select of the due jobs of one kind: on each level of priority, a range that ends now."""
    return f"""
        select from ({_levels(condition)}) as level
        cross join lateral (
            select from :SCHEMA._private_jobs as job
            where job.task_id = task.id and {condition} and job.priority = level.priority and {IS_DUE}
            order by job.run_at, job.id limit %(most)s) as job"""


def _first(condition: str) -> str:
    return f"""select from :SCHEMA._private_jobs as job where job.task_id = task.id and {condition}
        order by job.run_at, job.id limit 1"""


# The first job of a level is its oldest job.
AGES = f"""/* gw:task-ages */
select task.identifier, ready.number, extract(epoch from now() - ready.oldest)::float8,
    failing.retrying, failing.failed
from (select id, identifier from :SCHEMA._private_tasks order by id limit {MOST_TASKS}) as task
cross join lateral (
    select count(*) as number, min(greatest(job.run_at, '0001-01-02')) as oldest
    from ({" union all ".join(f"({_levels(condition)})" for condition in PARTS.values())}) as job
    where {IS_DUE}
) as ready
cross join lateral (
    select (select count(*) from ({_first(IS_RETRYING)}) as job) as retrying,
        (select count(*) from ({_first(IS_PERMANENTLY_FAILED)}) as job) as failed
) as failing"""

COUNTS = f"""/* gw:task-backlog */
select task.identifier, ready.number, failing.retrying, failing.failed
from :SCHEMA._private_tasks as task
cross join lateral (
    select count(*) as number
    from (select from ({" union all ".join(f"({_due(condition)})" for condition in PARTS.values())}) as job
        limit %(most)s) as job
) as ready
cross join lateral (
    select count(*) filter (where is_available) as retrying, count(*) filter (where not is_available) as failed
    from ((select true as is_available from :SCHEMA._private_jobs as job
        where job.task_id = task.id and {IS_RETRYING}
        order by job.run_at, job.id limit %(most)s)
        union all
        (select false from :SCHEMA._private_jobs as job
        where job.task_id = task.id and {IS_PERMANENTLY_FAILED}
        order by job.run_at, job.id limit %(most)s)) as job
) as failing
where task.identifier = any (%(tasks)s::text[])"""


class TaskBacklog(NamedTuple):
    """The backlog of one task. Numbers are at most one more than the limit; ``backlog_ages`` does not count."""

    task_identifier: str
    ready: int
    oldest_seconds: float | None
    retrying: int
    failed: int


def backlog_ages(cursor: Any, *, schema: str) -> list[TaskBacklog]:
    """Return how long jobs of each task have waited; read one job of each kind and priority."""
    cursor.execute(statement(AGES, schema))
    return [TaskBacklog._make(row) for row in cursor.fetchall()]


def task_backlogs(cursor: Any, ages: Iterable[TaskBacklog], *, schema: str) -> list[TaskBacklog]:
    """Return how many jobs wait for each of the tasks whose ages were read."""
    known = {each.task_identifier: each for each in ages}
    cursor.execute(statement(COUNTS, schema), {"tasks": list(known), "most": MOST_COUNTED + 1})
    return [
        known[name]._replace(ready=ready, retrying=retrying, failed=failed)
        for name, ready, retrying, failed in cursor.fetchall()
    ]


# A role that may not see the sessions of other roles can still see their age. reltuples is the count of the last
# vacuum.
HEALTH = """/* gw:health */
select extract(epoch from now())::float8, pg_notification_queue_usage(),
    extract(epoch from now() - oldest_transaction.xact_start)::float8, oldest_transaction.pid,
    oldest_transaction.application_name, size.estimate, size.bytes, coalesce(dead.n_dead_tup, 0)
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
    """Return how full the server's queue of notifications is, from 0 to 1."""
    cursor.execute(qualified(NOTIFY_QUEUE_USAGE))
    return float(cursor.fetchone()[0])


class Health(NamedTuple):
    """The health of the database: open transactions, the size of the table, notifications."""

    now: float
    notify_queue_usage: float
    oldest_transaction_seconds: float | None
    oldest_transaction_pid: int | None
    oldest_transaction_application: str | None
    estimated_jobs: int
    table_bytes: int
    dead_rows: int


def health(cursor: Any, *, schema: str) -> Health:
    """Return the health of the database."""
    cursor.execute(statement(HEALTH, schema))
    return Health._make(cursor.fetchone())
