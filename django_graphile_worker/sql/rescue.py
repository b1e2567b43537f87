"""What is done for dead workers: their jobs and queues are set free."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from django_graphile_worker.sql.schema import statement
from django_graphile_worker.sql.workers import WORKER_PREFIX

if TYPE_CHECKING:
    from django_graphile_worker.sql.exhaustion import Exhausted

# What the original allows a holder that tells nothing of itself.
STALE_LOCK_SECONDS = 4 * 3600
# A job that was running when its worker died, this many times, is no longer innocent.
POISON_LIMIT = 3
# How many jobs one sweep frees, if it is not told otherwise: the others follow at once.
MOST_RECOVERED = 1000

# Beats are written and judged by the database's clock alone. One from the future was
# written before that clock went back, and whoever lives has beaten since.
_IS_SILENT = """(
    last_heartbeat_at < coalesce(%(moment)s::timestamptz, now()) - interval '1 second' * %(timeout)s::float8
    or %(is_future_dead)s::boolean
        and last_heartbeat_at > coalesce(%(moment)s::timestamptz, now()) + interval '1 second' * %(timeout)s::float8)"""

# Who is dead: registered and silent, or one of ours that nobody registers (its
# claim arrived after its funeral). And the time by which they are.
DEAD_WORKERS = f"""/* gw:dead-workers */
select coalesce(%(moment)s::timestamptz, now()), array(
    select id from :SCHEMA._private_workers
    where {_IS_SILENT}
    union
    select :SCHEMA._private_worker_of(holder.locked_by)
    from (
        select locked_by, locked_at from :SCHEMA._private_jobs where locked_at is not null
        union all
        select locked_by, locked_at from :SCHEMA._private_job_queues where locked_at is not null
    ) as holder
    where holder.locked_by like %(prefix)s::text
        and holder.locked_at < coalesce(%(now)s::timestamptz, now()) - interval '1 second' * %(timeout)s::float8
        and not exists (
            select from :SCHEMA._private_workers as worker
            where worker.id = :SCHEMA._private_worker_of(holder.locked_by)))"""

# A worker may beat again between being found silent and being swept: its row is
# taken first and looked at once more.
BURY_WORKERS = f"""/* gw:bury-workers */
delete from :SCHEMA._private_workers
where id = any (array(
    select id from :SCHEMA._private_workers
    where id = any (%(worker_ids)s::text[]) and {_IS_SILENT}
    for update skip locked))
returning id"""

# The first time a job keeps its place, as if it had not begun. After that it waits,
# each job for another while: one that kills its worker must not take the same
# neighbours along every time.
RECOVER_JOBS = """/* gw:recover */
with orphan as materialized (
    select job.ctid as tid, job.id, job.locked_by, job.locked_at, coalesce(earlier.recoveries, 0) + 1 as recoveries,
        job.attempts = job.max_attempts and job.updated_at > job.locked_at as was_cancelled
    from :SCHEMA._private_jobs as job
    left join :SCHEMA._private_job_recoveries as earlier on earlier.job_id = job.id
    where job.locked_at is not null and :SCHEMA._private_worker_of(job.locked_by) = any (%(worker_ids)s::text[])
    order by job.id
    limit %(limit)s::int
    for update of job skip locked
), remembered as (
    insert into :SCHEMA._private_job_recoveries as known (job_id, recoveries, last_recovered_at)
    select id, recoveries, coalesce(%(now)s::timestamptz, now()) from orphan
    on conflict (job_id) do update
    set recoveries = excluded.recoveries, last_recovered_at = excluded.last_recovered_at
)
update :SCHEMA._private_jobs as job
set attempts = case
        when orphan.was_cancelled or orphan.recoveries >= %(poison_limit)s then job.attempts
        else greatest(job.attempts - 1, 0) end,
    run_at = case
        when orphan.recoveries = 1 then job.run_at
        else greatest(job.run_at, coalesce(%(now)s::timestamptz, now()))
            + interval '1 second' * exp(least(orphan.recoveries, 10)) * (0.5::float8 + random()) end,
    last_error = format(
        'The worker %%s died while it held this job (%%s).', :SCHEMA._private_worker_of(job.locked_by),
        case when orphan.recoveries = 1 then 'the first time'
        else orphan.recoveries || ' times; from ' || %(poison_limit)s || ' on the attempt counts' end),
    locked_by = null,
    locked_at = null
from orphan
where job.ctid = orphan.tid
returning job.id, not orphan.was_cancelled and job.attempts >= job.max_attempts as is_exhausted,
    :SCHEMA._private_worker_of(orphan.locked_by), orphan.locked_at,
    extract(epoch from coalesce(%(now)s::timestamptz, now()) - orphan.locked_at)::float8"""

RECOVER_QUEUES = """/* gw:recover-queues */
update :SCHEMA._private_job_queues
set locked_by = null, locked_at = null
where id = any (array(
    select id from :SCHEMA._private_job_queues
    where locked_at is not null and :SCHEMA._private_worker_of(locked_by) = any (%(worker_ids)s::text[])
    for update skip locked))
returning id"""

# Holders that never registered are other people's workers: theirs is the
# original's patience, and the attempt counts, as there.
RELEASE_STALE_JOBS = """/* gw:stale-jobs */
with stale as materialized (
    select job.ctid as tid, job.locked_by, job.locked_at,
        extract(epoch from coalesce(%(now)s::timestamptz, now()) - job.locked_at)::float8 as seconds,
        job.attempts = job.max_attempts and job.updated_at > job.locked_at as was_cancelled
    from :SCHEMA._private_jobs as job
    where job.locked_at < coalesce(%(now)s::timestamptz, now()) - interval '1 second' * %(stale)s::float8
        and not exists (
            select from :SCHEMA._private_workers as worker where worker.id = :SCHEMA._private_worker_of(job.locked_by))
    for update of job skip locked
)
update :SCHEMA._private_jobs as job
set locked_by = null,
    locked_at = null,
    run_at = greatest(job.run_at, coalesce(%(now)s::timestamptz, now())),
    last_error = case when stale.was_cancelled then job.last_error else format(
        'The worker %%s had held this job for %%s hours and was taken for dead.',
        stale.locked_by, round(stale.seconds::numeric / 3600::numeric, 1)) end
from stale
where job.ctid = stale.tid
returning job.id, not stale.was_cancelled and job.attempts >= job.max_attempts as is_exhausted,
    stale.locked_by, stale.locked_at, stale.seconds"""

RELEASE_STALE_QUEUES = """/* gw:stale-queues */
update :SCHEMA._private_job_queues
set locked_by = null, locked_at = null
where id = any (array(
    select queue.id from :SCHEMA._private_job_queues as queue
    where queue.locked_at < coalesce(%(now)s::timestamptz, now()) - interval '1 second' * %(stale)s::float8
        and not exists (
            select from :SCHEMA._private_workers as worker
            where worker.id = :SCHEMA._private_worker_of(queue.locked_by))
    for update skip locked))
returning id"""

FORGET_RECOVERIES = """/* gw:forget-recoveries */
delete from :SCHEMA._private_job_recoveries as known
where not exists (select from :SCHEMA._private_jobs as job where job.id = known.job_id)"""

WAKE_WORKERS = """/* gw:wake */
select pg_notify('jobs:insert', json_build_object('r', random(), 'count', %(count)s::int)::text)"""


class Suspicion(NamedTuple):
    """Who seems dead, and by what they were judged: they are judged by it once more before they are buried."""

    worker_ids: list[str]
    # The database's own time.
    moment: datetime
    timeout: float
    is_future_dead: bool


class Recovered(NamedTuple):
    """What a sweep set free."""

    dead_worker_ids: tuple[str, ...]
    job_ids: tuple[int, ...]
    queue_ids: tuple[int, ...]
    # There may be more jobs of the same dead: sweep again at once.
    is_partial: bool
    # Those of the jobs that will not be tried again.
    exhausted: tuple[Exhausted, ...] = ()


class Unlocked(NamedTuple):
    """How many stale locks are gone, and which of the jobs will not be tried again."""

    jobs: int
    queues: int
    exhausted: tuple[Exhausted, ...] = ()


def suspect(
    cursor: Any, *, schema: str, timeout: float, now: datetime | None = None, is_future_dead: bool = False
) -> Suspicion:
    """Who seems dead, by the time by which beats are written. ``now`` is the time of the jobs."""
    judgement = {"moment": None, "timeout": timeout, "is_future_dead": is_future_dead}
    cursor.execute(statement(DEAD_WORKERS, schema), {**judgement, "prefix": f"{WORKER_PREFIX}%", "now": now})
    moment, worker_ids = cursor.fetchone()
    return Suspicion(worker_ids, moment, timeout, is_future_dead)


def recover(
    cursor: Any, *, schema: str, timeout: float, limit: int = MOST_RECOVERED, now: datetime | None = None
) -> Recovered:
    """Free what dead workers held. Found by state, not by event: run it again and again."""
    return free(cursor, suspect(cursor, schema=schema, timeout=timeout, now=now), schema=schema, limit=limit, now=now)


def free(
    cursor: Any, suspicion: Suspicion, *, schema: str, limit: int = MOST_RECOVERED, now: datetime | None = None
) -> Recovered:
    """Free what the suspects held, those of them that are dead."""
    if not suspicion.worker_ids:
        return Recovered((), (), (), is_partial=False)
    dead = _bury(cursor, suspicion, schema=schema)
    shared = {"worker_ids": dead, "limit": limit, "poison_limit": POISON_LIMIT, "now": now}
    cursor.execute(statement(RECOVER_JOBS, schema), shared)
    rows = cursor.fetchall()
    cursor.execute(statement(RECOVER_QUEUES, schema), {"worker_ids": dead})
    queue_ids = tuple(row[0] for row in cursor.fetchall())
    return Recovered(
        tuple(dead),
        tuple(row[0] for row in rows),
        queue_ids,
        is_partial=len(rows) >= limit,
        exhausted=_exhausted(cursor, rows, schema=schema),
    )


def _exhausted(cursor: Any, rows: Iterable[Sequence[Any]], *, schema: str) -> tuple[Exhausted, ...]:
    if not any(row[1] for row in rows):
        return ()
    # Here, as it is rare, and would be 2 ms of every start.
    from django_graphile_worker.sql.exhaustion import Hold, exhausted_jobs

    holds = {job_id: Hold(*hold) for job_id, is_exhausted, *hold in rows if is_exhausted}
    return exhausted_jobs(cursor, holds, schema=schema)


def _bury(cursor: Any, suspicion: Suspicion, *, schema: str) -> list[str]:
    cursor.execute(statement(BURY_WORKERS, schema), suspicion._asdict())
    buried = {row[0] for row in cursor.fetchall()}
    cursor.execute(
        statement("/* gw:alive */ select id from :SCHEMA._private_workers where id = any (%(ids)s::text[])", schema),
        {"ids": suspicion.worker_ids},
    )
    alive = {row[0] for row in cursor.fetchall()}
    return [worker_id for worker_id in suspicion.worker_ids if worker_id in buried or worker_id not in alive]


def release_stale_locks(
    cursor: Any, *, schema: str, stale: float = STALE_LOCK_SECONDS, now: datetime | None = None
) -> Unlocked:
    """Free what unregistered holders have held for four hours."""
    cursor.execute(statement(RELEASE_STALE_JOBS, schema), {"stale": stale, "now": now})
    jobs = cursor.fetchall()
    cursor.execute(statement(RELEASE_STALE_QUEUES, schema), {"stale": stale, "now": now})
    queues = len(cursor.fetchall())
    return Unlocked(len(jobs), queues, _exhausted(cursor, jobs, schema=schema))


def forget_recoveries(cursor: Any, *, schema: str) -> None:
    """Drop the memory of jobs that are gone."""
    cursor.execute(statement(FORGET_RECOVERIES, schema))


def wake_workers(cursor: Any, count: int, *, schema: str) -> None:
    cursor.execute(statement(WAKE_WORKERS, schema), {"count": count})
