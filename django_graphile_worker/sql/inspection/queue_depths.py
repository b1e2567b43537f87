"""Named queues: how many jobs wait in each, since when, and which worker holds it."""

from __future__ import annotations

from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.inspection.overview import WAITING_QUEUES
from django_graphile_worker.sql.jobs import IS_AVAILABLE_IN_QUEUE, TRUE_RUN_AT_OF_JOB
from django_graphile_worker.sql.statements import statement
from django_graphile_worker.sql.workers import RUST_TIMEOUT

MAX_COUNTED = 1_000
MAX_TASKS = 2_000

# The default of ``timeout``: the seconds without a heartbeat after which a worker that states none counts as lost.
TIMEOUT = 60.0

# Workers of Node.js do not register. A pause holds a queue without a worker.
_HOLDER_STATE = f"""case when queue.locked_at is null or queue.locked_at = 'infinity' then null
    when holder.id is null then
        case when starts_with(queue.locked_by, 'django-worker-') then 'lost' else 'unregistered' end
    when extract(epoch from now() - holder.last_heartbeat_at)::float8
        >= coalesce(holder.timeout_seconds, greatest(%(timeout)s::float8, {RUST_TIMEOUT:g})) then 'lost'
    else 'alive' end"""

# One index has the jobs of a queue side by side, whatever their tasks.
_DEPTHS = f"""
select queue.id, queue.queue_name, {readable("queue.locked_at")}, :SCHEMA._private_worker_of(queue.locked_by),
    depth.number,
    {readable("depth.oldest")}, extract(epoch from now() - depth.oldest)::float8, running.id, running.identifier,
    {readable("pause.paused_at")}, {readable("pause.paused_until")}, pause.reason, pause.paused_by,
    {_HOLDER_STATE}
from chosen as queue
left join :SCHEMA._private_workers as holder on holder.id = :SCHEMA._private_worker_of(queue.locked_by)
left join :SCHEMA._private_pauses as pause
    on pause.kind = 'queue' and pause.name = queue.queue_name and pause.handed_to is null
cross join lateral (
    select counted.number, case when counted.is_whole then counted.first else oldest.run_at end as oldest
    from (
        select count(*) as number, min(greatest(job.run_at, '0001-01-02')) as first,
            -- The time of a job that waits for a limit is not in the index.
            count(*) < %(most)s::int and max(job.run_at) < 'infinity' as is_whole
        from (
            select job.run_at from :SCHEMA._private_jobs as job
            where {IS_AVAILABLE_IN_QUEUE} and job.job_queue_id = queue.id
            order by job.task_id, job.priority, job.run_at, job.id limit %(most)s) as job) as counted
    cross join lateral (
        -- The first job of each task and priority of the queue, if there are jobs that were not read.
        with recursive stair (task_id, priority, run_at) as (
            select -2147483648, 0::smallint, null::timestamptz where not counted.is_whole
            union all
            select ahead.task_id, ahead.priority, ahead.run_at
            from stair
            cross join lateral (
                select job.task_id, job.priority, {TRUE_RUN_AT_OF_JOB} as run_at from :SCHEMA._private_jobs as job
                where {IS_AVAILABLE_IN_QUEUE}
                    and (job.job_queue_id, job.task_id, job.priority) > (queue.id, stair.task_id, stair.priority)
                    and job.job_queue_id <= queue.id
                order by job.job_queue_id, job.task_id, job.priority, job.run_at limit 1) as ahead)
        select min(greatest(stair.run_at, '0001-01-02')) filter (where stair.run_at is not null) as run_at
        from (select stair.run_at from stair limit %(most)s) as stair) as oldest) as depth
left join lateral (
    select job.id, task.identifier from :SCHEMA._private_jobs as job
    left join :SCHEMA._private_tasks as task on task.id = job.task_id
    -- A paused queue has the lock of its pause, while a job of it may still run.
    where job.locked_at >= case when queue.locked_at = 'infinity' then '-infinity'
            else queue.locked_at - interval '1 second' end and job.job_queue_id = queue.id
        and (queue.locked_at = 'infinity' or job.locked_by = queue.locked_by)
    order by job.priority, job.run_at, job.id limit 1) as running on queue.locked_at is not null"""


def _page(bound: str, direction: str) -> str:
    """Return the statement for the queues nearest to a name, before or after it, always sorted by name."""
    return f"""/* gw:queues */
with chosen as materialized (
    select id, queue_name, locked_at, locked_by from :SCHEMA._private_job_queues
    where queue_name {bound} and (%(search)s = '' or position(lower(%(search)s) in lower(queue_name)) > 0)
        and (not %(only_held)s or locked_at is not null)
    order by queue_name {direction} limit %(limit)s)
{_DEPTHS}
order by queue.queue_name"""


PAGE = _page("> %(after)s", "asc")
PAGE_BEFORE = _page("< %(before)s", "desc")

# Held queues come first: they are the queues to investigate.
HELD_FIRST = f"""/* gw:list-queues */
with chosen as materialized (
    select * from (
        (select id, queue_name, locked_at, locked_by from :SCHEMA._private_job_queues
            where locked_at is not null and (%(name)s::text is null or queue_name = %(name)s::text)
            order by locked_at limit %(limit)s)
        union all
        (select id, queue_name, locked_at, locked_by from :SCHEMA._private_job_queues
            where not %(only_held)s and locked_at is null and (%(name)s::text is null or queue_name = %(name)s::text)
            order by queue_name limit %(limit)s)) as queue
    order by locked_at nulls last, queue_name limit %(limit)s)
{_DEPTHS}
order by queue.locked_at nulls last, queue.queue_name"""

# The queues of the jobs that run next, and held queues.
BUSIEST = f"""/* gw:busiest-queues */
with next_job as materialized (
    select job.job_queue_id from (select id from :SCHEMA._private_tasks order by id limit {MAX_TASKS}) as task
    cross join lateral (
        select job.job_queue_id from :SCHEMA._private_jobs as job
        where job.task_id = task.id and job.is_available and job.job_queue_id > 0
        order by job.priority, job.run_at, job.id limit 100) as job
    limit 2000),
held as materialized (
    select id from :SCHEMA._private_job_queues where locked_at is not null order by locked_at limit 20),
chosen as materialized (
    select id, queue_name, locked_at, locked_by from :SCHEMA._private_job_queues
    where id in (
        (select job_queue_id from next_job group by job_queue_id order by count(*) desc limit 20)
        union select id from held))
{_DEPTHS}
order by depth.number desc, queue.queue_name
limit %(limit)s"""


# How many queues with jobs, and how many held queues, are put in order; how many jobs of each decide the order.
MAX_ACTIVE = 1_000
MAX_RANKED = 50

# Queues that a lost worker holds come first, then those with most jobs. The walk goes from one queue to the next.
ACTIVE = f"""/* gw:active-queues */
with recursive {WAITING_QUEUES}, candidate as materialized (
    (select id from waiting where id is not null limit {MAX_ACTIVE})
    union
    (select id from :SCHEMA._private_job_queues where locked_at is not null order by locked_at limit {MAX_ACTIVE})
), ranked as materialized (
    select queue.id, queue.queue_name, queue.locked_at, queue.locked_by, counted.number,
        coalesce(({_HOLDER_STATE}) = 'lost', false) as is_lost
    from candidate
    join :SCHEMA._private_job_queues as queue on queue.id = candidate.id
    left join :SCHEMA._private_workers as holder on holder.id = :SCHEMA._private_worker_of(queue.locked_by)
    cross join lateral (
        select count(*) as number from (
            select from :SCHEMA._private_jobs as job where {IS_AVAILABLE_IN_QUEUE} and job.job_queue_id = queue.id
            limit {MAX_RANKED}) as job) as counted
), chosen as materialized (
    select ranked.*, row_number() over (order by is_lost desc, number desc, locked_at, queue_name) as place,
        count(*) over () as active
    from ranked
    order by place offset %(offset)s limit %(limit)s)
{_DEPTHS.replace("from chosen as queue", ", queue.active from chosen as queue")}
order by queue.place"""

# Up to one more than this many queues are counted.
MAX_QUEUES = 10_000
COUNT = f"""/* gw:count-queues */
select count(*) from (select from :SCHEMA._private_job_queues limit {MAX_QUEUES + 1}) as queue"""


class QueueDepth(NamedTuple):
    """A queue; the number of waiting jobs is at most one more than the limit."""

    id: int
    queue_name: str
    locked_at: Any
    locked_by: str | None
    number: int
    oldest: Any
    oldest_seconds: float | None
    running_id: int | None
    running_task: str | None
    paused_at: Any = None
    paused_until: Any = None
    pause_reason: str | None = None
    paused_by: str | None = None
    # "alive", "lost" or "unregistered"; None if no worker holds the queue.
    holder_state: str | None = None

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None


def queues(
    cursor: Any,
    *,
    schema: str,
    limit: int,
    after: str = "",
    before: str = "",
    search: str = "",
    only_held: bool = False,
    timeout: float = TIMEOUT,
) -> list[QueueDepth]:
    """Return a page of queues, sorted by name: the first queues after a name, or the last queues before a name."""
    parameters = {
        "after": after,
        "before": before,
        "search": search,
        "only_held": only_held,
        "limit": limit,
        "most": MAX_COUNTED + 1,
        "timeout": timeout,
    }
    cursor.execute(statement(PAGE_BEFORE if before else PAGE, schema), parameters)
    return [QueueDepth._make(row) for row in cursor.fetchall()]


def held_first(
    cursor: Any,
    *,
    schema: str,
    limit: int,
    name: str | None = None,
    only_held: bool = False,
    most: int = MAX_COUNTED,
    timeout: float = TIMEOUT,
) -> list[QueueDepth]:
    """Return queues, or the queue with this name; held queues come first."""
    parameters = {"limit": limit, "name": name, "only_held": only_held, "most": most + 1, "timeout": timeout}
    cursor.execute(statement(HELD_FIRST, schema), parameters)
    return [QueueDepth._make(row) for row in cursor.fetchall()]


def busiest_queues(cursor: Any, *, schema: str, limit: int = 10, timeout: float = TIMEOUT) -> list[QueueDepth]:
    """Return some of the queues with the most waiting jobs."""
    parameters = {"limit": limit, "most": MAX_COUNTED + 1, "timeout": timeout}
    cursor.execute(statement(BUSIEST, schema), parameters)
    return [QueueDepth._make(row) for row in cursor.fetchall()]


class ActiveQueues(NamedTuple):
    """Queues that are held or have jobs: some of them, in order, and how many there are; and the number of queues.

    Numbers are at most one more than the limit of what is counted.
    """

    queues: list[QueueDepth]
    active: int
    total: int


def active_queues(cursor: Any, *, schema: str, limit: int, offset: int = 0, timeout: float = TIMEOUT) -> ActiveQueues:
    """Return queues that are held or have jobs: those of lost workers first, then those with most jobs."""
    parameters = {"limit": limit, "offset": offset, "most": MAX_COUNTED + 1, "timeout": timeout}
    cursor.execute(statement(ACTIVE, schema), parameters)
    rows = cursor.fetchall()
    cursor.execute(statement(COUNT, schema))
    (total,) = cursor.fetchone()
    active = rows[0][-1] if rows else 0
    return ActiveQueues([QueueDepth._make(row[:-1]) for row in rows], active, total)
