"""Figures of the dashboard that are not in the statistics: the backlog of each task, and the database's health.

Also tasks that no live worker runs although jobs wait for them, and the oldest ready job that no pause keeps waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.control import Pause, PauseKind
from django_graphile_worker.sql.inspection.job_list import AVAILABLE_OF_TASK, OldestReady
from django_graphile_worker.sql.jobs import (
    IS_ALIVE,
    IS_AVAILABLE_IN_QUEUE,
    IS_DUE,
    IS_PERMANENTLY_FAILED,
    IS_READY,
    IS_RETRYING,
)
from django_graphile_worker.sql.statements import qualified, statement

# How many jobs of each kind are counted for each task.
MAX_COUNTED = 5_000
# From these values on, the overview of the admin, ``status --check`` and ``doctor`` report a problem of the database.
# The NOTIFY queue is normally almost empty: if a larger share is full, some session does not read it.
FULL_NOTIFY_QUEUE = 0.1
LONG_TRANSACTION = 600.0
MANY_DEAD_ROWS = 50_000
# Seconds in which autovacuum removes the dead rows of a change of many jobs.
DEAD_ROWS_STAY = 600.0
CLOCK_DIFFERENCE = 5.0
# Usually few tasks and few priorities are in use. These limits only keep a page fast if a program has filled the tables
# with names.
MAX_TASKS = 2_000
MAX_LEVELS = 5_000


def levels(condition: str) -> str:
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
            select * from level limit {MAX_LEVELS}) as level"""


def in_each_level(condition: str, time: str = IS_DUE) -> str:
    """Return the select of the jobs of one kind that are due, or meet another condition on their time.

    On each level of priority they are a range of the index, of which ``most`` are read.
    """
    return f"""
        select from ({levels(condition)}) as level
        cross join lateral (
            select from :SCHEMA._private_jobs as job
            where job.task_id = task.id and {condition} and job.priority = level.priority and {time}
            order by job.run_at, job.id limit %(most)s) as job"""


def _first(condition: str) -> str:
    return f"""select from :SCHEMA._private_jobs as job where job.task_id = task.id and {condition}
        order by job.run_at, job.id limit 1"""


# The first job of a level is its oldest job.
AGES = f"""/* gw:task-ages */
select task.identifier, ready.number, extract(epoch from now() - ready.oldest)::float8,
    failing.retrying, failing.failed
from (select id, identifier from :SCHEMA._private_tasks order by id limit {MAX_TASKS}) as task
cross join lateral (
    select count(*) as number, min(greatest(job.run_at, '0001-01-02')) as oldest
    from ({" union all ".join(f"({levels(condition)})" for condition in AVAILABLE_OF_TASK)}) as job
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
    from (select from ({" union all ".join(f"({in_each_level(condition)})" for condition in AVAILABLE_OF_TASK)}) as job
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
    cursor.execute(statement(COUNTS, schema), {"tasks": list(known), "most": MAX_COUNTED + 1})
    return [
        known[name]._replace(ready=ready, retrying=retrying, failed=failed)
        for name, ready, retrying, failed in cursor.fetchall()
    ]


# How many jobs before a job are counted, and how many queues are looked at for that.
MAX_BEFORE = 1_000
MAX_QUEUES = 10_000
# How many pairs of a task and a priority are looked at in each queue.
MAX_STEPS = 100

_BEFORE_IN_TASK = f"""
    select from ({levels(AVAILABLE_OF_TASK[0])}) as level
    cross join lateral (
        select from :SCHEMA._private_jobs as job
        where job.task_id = task.id and {AVAILABLE_OF_TASK[0]} and job.priority = level.priority
            and job.run_at <= case when level.priority < %(priority)s::int then now() else %(run_at)s::timestamptz end
            and (level.priority < %(priority)s::int
                or (job.run_at, job.id) < (%(run_at)s::timestamptz, %(id)s::bigint))
        order by job.run_at, job.id limit {MAX_BEFORE + 1}) as job
    where level.priority <= %(priority)s::int"""

# The queues that have jobs, one after the other, however many jobs each has; at the end a null.
WAITING_QUEUES = f"""waiting (id) as (
    (select job.job_queue_id from :SCHEMA._private_jobs as job where {IS_AVAILABLE_IN_QUEUE}
    order by job.job_queue_id, job.task_id, job.priority, job.run_at, job.id limit 1)
    union all
    select (select job.job_queue_id from :SCHEMA._private_jobs as job
        where {IS_AVAILABLE_IN_QUEUE} and job.job_queue_id > waiting.id
        order by job.job_queue_id, job.task_id, job.priority, job.run_at, job.id limit 1)
    from waiting where waiting.id is not null)"""

# Of the jobs of a queue one counts, as they run one after the other, and none while the queue is held or paused. The
# walk goes from one queue to the next, however many jobs each has.
JOBS_BEFORE = f"""/* gw:jobs-before */
with recursive task as materialized (
    select id from :SCHEMA._private_tasks where identifier = any (%(tasks)s::text[])),
{WAITING_QUEUES}
select (select count(*) from (
        select from task cross join lateral ({_BEFORE_IN_TASK}) as job limit {MAX_BEFORE + 1}) as job)
    + (select count(*) from (
        select from (select id from waiting where id is not null limit {MAX_QUEUES}) as waiting
        join :SCHEMA._private_job_queues as queue on queue.id = waiting.id and queue.locked_at is null
        cross join lateral (
            with recursive stair (task_id, priority, run_at, id) as (
                select -2147483648, 0::smallint, null::timestamptz, null::bigint
                union all
                select ahead.* from stair
                cross join lateral (
                    select job.task_id, job.priority, job.run_at, job.id from :SCHEMA._private_jobs as job
                    where {IS_AVAILABLE_IN_QUEUE}
                        and (job.job_queue_id, job.task_id, job.priority) > (queue.id, stair.task_id, stair.priority)
                        and job.job_queue_id <= queue.id
                    order by job.job_queue_id, job.task_id, job.priority, job.run_at, job.id limit 1) as ahead)
            select from (select * from stair limit {MAX_STEPS}) as job
            where job.task_id in (select task.id from task) and {IS_DUE} and (job.priority, job.run_at, job.id)
                < (%(priority)s::int, %(run_at)s::timestamptz, %(id)s::bigint)
            limit 1) as head
        limit {MAX_BEFORE + 1}) as queue)"""


def jobs_before(cursor: Any, job_id: int, tasks: Sequence[str], *, priority: int, run_at: Any, schema: str) -> int:
    """Return about how many jobs of these tasks are claimed before a job; at most one more than ``MAX_BEFORE``."""
    parameters = {"id": job_id, "tasks": list(tasks)[:MAX_TASKS], "priority": priority, "run_at": run_at}
    cursor.execute(statement(JOBS_BEFORE, schema), parameters)
    return min(int(cursor.fetchone()[0]), MAX_BEFORE + 1)


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


MAX_NAMED = 20
# For each task, one job is looked up in an index. The limit keeps that fast if a program has filled the table with
# names.
MAX_TASKS_EXAMINED = 10_000

_FIRST_JOB = " union all ".join(
    f"(select job.id from :SCHEMA._private_jobs as job where job.task_id = task.id and {condition}"
    " order by job.priority, job.run_at, job.id limit 1)"
    for condition in AVAILABLE_OF_TASK
)

# A live worker that does not list its tasks may run any task; then the statement returns nothing.
UNSERVED = f"""/* gw:unserved-tasks */
with alive as materialized (
    select worker.metadata -> 'tasks' as tasks from :SCHEMA._private_workers as worker
    where {IS_ALIVE}),
served as materialized (
    select distinct pg_catalog.jsonb_array_elements_text(tasks) as identifier from alive
    where pg_catalog.jsonb_typeof(tasks) = 'array')
select task.identifier, first_job.id
from (
    select task.id, task.identifier from :SCHEMA._private_tasks as task
    where task.identifier not in (select served.identifier from served)
        and exists (select from alive)
        and not exists (select from alive where pg_catalog.jsonb_typeof(tasks) is distinct from 'array')
    order by task.id desc limit {MAX_TASKS_EXAMINED}) as task
cross join lateral (select min_job.id from ({_FIRST_JOB}) as min_job limit 1) as first_job
order by first_job.id limit %(most)s"""


class UnservedTask(NamedTuple):
    """A task, and the first job that waits for it."""

    identifier: str
    job_id: int


def unserved_tasks(cursor: Any, *, schema: str, timeout: float, most: int = MAX_NAMED) -> list[UnservedTask]:
    """Return the tasks of waiting jobs that no live worker runs; none while no worker is alive."""
    cursor.execute(statement(UNSERVED, schema), {"timeout": timeout, "most": most})
    return [UnservedTask._make(row) for row in cursor.fetchall()]


# No index passes over the jobs of a paused queue or flag. So many jobs of a task and priority are examined at most: a
# job behind more paused jobs than that is not found.
MAX_EXAMINED = 10_000

_PAUSED_IDS = """paused_task as materialized (
    select task.id from :SCHEMA._private_tasks as task where task.identifier = any (%(paused_tasks)s::text[])),
paused_queue as materialized (
    select queue.id from :SCHEMA._private_job_queues as queue
    where queue.queue_name = any (%(paused_queues)s::text[]))"""


def _oldest(condition: str) -> str:
    """Return the select of the oldest job of a task and each priority; each kind of jobs has an index of its own."""
    return f"""select found.run_at, found.id from ({levels(condition)}) as level cross join lateral (
        select examined.run_at, examined.id from (
            select job.run_at, job.id, job.job_queue_id, job.flags from :SCHEMA._private_jobs as job
            where {condition} and {IS_READY} and job.task_id = task.id and job.priority = level.priority
            order by job.priority, job.run_at, job.id limit {MAX_EXAMINED}) as examined
        where (examined.job_queue_id is null
                or examined.job_queue_id not in (select paused_queue.id from paused_queue))
            and (examined.flags ?| %(paused_flags)s::text[]) is not true
        order by examined.run_at, examined.id limit 1) as found"""


OLDEST_UNPAUSED = f"""/* gw:oldest-unpaused */
with {_PAUSED_IDS}
select {readable("oldest.run_at")}, oldest.id, task.identifier
from (
    select id, identifier from :SCHEMA._private_tasks
    where (%(tasks)s::text[] is null or identifier = any (%(tasks)s::text[]))
        and id not in (select paused_task.id from paused_task)
    order by id limit {MAX_TASKS}) as task
cross join lateral ({" union all ".join(f"({_oldest(each)})" for each in AVAILABLE_OF_TASK)}) as oldest
order by oldest.run_at, oldest.id limit 1"""


def oldest_unpaused(
    cursor: Any, pauses: Sequence[Pause], *, schema: str, tasks: tuple[str, ...] = ()
) -> OldestReady | None:
    """Return the job that has been ready for the longest time, of all jobs that are not paused."""
    paused = {f"paused_{kind}s": [each.name for each in pauses if each.kind is kind] for kind in PauseKind}
    cursor.execute(statement(OLDEST_UNPAUSED, schema), {"tasks": list(tasks) or None, **paused})
    row = cursor.fetchone()
    return None if row is None else OldestReady._make(row)
