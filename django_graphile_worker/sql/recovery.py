"""Recovery: find dead workers, remove them from the register, and release their jobs and queues."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings

from django_graphile_worker.exceptions import WorkerDiedError
from django_graphile_worker.jobs import Job
from django_graphile_worker.sql.codecs import with_naive_times, within_python_years
from django_graphile_worker.sql.control import CancelledJob, end_cancelled_claims_of
from django_graphile_worker.sql.jobs import JOB_COLUMNS, jobs_from
from django_graphile_worker.sql.results import NOTHING_KEPT, ResultKeeping
from django_graphile_worker.sql.statements import KEEPING, statement
from django_graphile_worker.sql.workers import is_lease_over

# After this many seconds the lock of a worker that is not registered is stale, as in graphile-worker itself.
STALE_LOCK_SECONDS = 4 * 3600
# From this number of worker deaths during a job on, the attempt counts.
POISON_LIMIT = 3
# How many jobs one call recovers by default; the caller calls again for the rest.
MAX_RECOVERED = 2000
# The interval of heartbeats, in seconds, if neither the worker's row nor the caller states it.
DEFAULT_HEARTBEAT = 10.0

READ_FLEET = """/* gw:look-at-fleet */
select late.worker_id, late.beaten_at, late.silent_seconds, late.timeout_seconds, late.heartbeat_seconds, late.workers,
    orphans.worker_ids, orphans.reached
from :SCHEMA._private_late_workers(
    %(timeout)s::pg_catalog.float8, %(heartbeat)s::pg_catalog.float8, %(moment)s::pg_catalog.timestamptz) as late
cross join :SCHEMA._private_orphans(
    %(timeout)s::pg_catalog.float8, %(now)s::pg_catalog.timestamptz, %(go_on_at)s::pg_catalog.float8) as orphans"""

REMOVE_DEAD_WORKERS = """/* gw:remove-dead-workers */
select worker_id
from :SCHEMA._private_remove_dead_workers(
    %(worker_ids)s::pg_catalog.text[], %(beats)s::pg_catalog.float8[], %(by)s::pg_catalog.text) as worker_id"""

# Each of these statements also writes an event, which is committed with the jobs. The last column exists to have the
# events written.
RECOVER_JOBS = f"""/* gw:recover */
with recovered as materialized (
    select job_id, is_exhausted, worker_id, held_since, held_seconds
    from :SCHEMA._private_recover_jobs(
        %(worker_ids)s::pg_catalog.text[], null, %(limit)s::pg_catalog.int4, %(poison_limit)s::pg_catalog.int4,
        {KEEPING}, %(now)s::pg_catalog.timestamptz)
), events as materialized (
    select :SCHEMA._private_add_event('jobs_recovered', 1, null,
        pg_catalog.jsonb_build_object(
            'jobs', each.jobs, 'exhausted', each.exhausted, 'by', %(by)s::pg_catalog.text,
            'exhausted_ids', each.exhausted_ids[1:3], 'suspected_ids', each.suspected_ids[1:3]),
        each.worker_id, null, true) as id
    from (
        select worker_id, count(*) as jobs, nullif(count(*) filter (where is_exhausted), 0) as exhausted,
            array_agg(job_id order by job_id) filter (where is_exhausted) as exhausted_ids,
            -- The snapshot of the statement is older than the recovery: it has only earlier ones.
            array_agg(job_id order by job_id) filter (where not is_exhausted and exists (
                select from only :SCHEMA._private_job_recoveries as earlier
                where earlier.job_id operator(pg_catalog.=) recovered.job_id)) as suspected_ids
        from recovered group by worker_id order by worker_id) as each
)
select job_id, is_exhausted, worker_id, {within_python_years("held_since")}, held_seconds,
    (select count(events.id) from events)
from recovered"""

RECOVER_QUEUES = """/* gw:recover-queues */
select queue_id from :SCHEMA._private_recover_queues(%(worker_ids)s::pg_catalog.text[]) as queue_id"""

RELEASE_STALE_JOBS = f"""/* gw:stale-jobs */
with released as materialized (
    select job_id, is_exhausted, worker_id, held_since, held_seconds
    from :SCHEMA._private_recover_jobs(
        null, %(stale)s::pg_catalog.float8, null, null, {KEEPING}, %(now)s::pg_catalog.timestamptz)
), events as materialized (
    select :SCHEMA._private_add_event('stale_locks_released', 2, '',
        pg_catalog.jsonb_build_object('jobs', each.jobs, 'holder', each.holder, 'by', %(by)s::pg_catalog.text),
        null, null, true) as id
    from (select count(*) as jobs, min(worker_id) as holder from released having count(*) > 0) as each
)
select job_id, is_exhausted, worker_id, {within_python_years("held_since")}, held_seconds,
    (select count(events.id) from events)
from released"""

RELEASE_STALE_QUEUES = """/* gw:stale-queues */
with released as materialized (
    select queue_id from :SCHEMA._private_recover_queues(
        null, %(stale)s::pg_catalog.float8, %(now)s::pg_catalog.timestamptz) as queue_id
), events as materialized (
    select :SCHEMA._private_add_event('stale_locks_released', 2, '',
        pg_catalog.jsonb_build_object('queues', each.queues, 'by', %(by)s::pg_catalog.text), null, null, true) as id
    from (select count(*) as queues from released having count(*) > 0) as each
)
select queue_id, (select count(events.id) from events) from released"""

EXHAUSTED_JOBS = f"""/* gw:exhausted */
select {JOB_COLUMNS} from :SCHEMA._private_jobs as job where job.id = any (%(ids)s::bigint[]) order by job.id"""

FORGET_ENDED = "/* gw:forget-ended */ select :SCHEMA._private_forget_ended()"


class LateWorker(NamedTuple):
    """A worker without a heartbeat for half of its timeout; times are seconds, by the database's clock."""

    id: str
    beaten_at: float
    # Negative if the heartbeat is in the future.
    silent_seconds: float
    timeout_seconds: float
    heartbeat_seconds: float

    @property
    def is_silent(self) -> bool:
        """Whether its last heartbeat is older than its timeout."""
        return self.is_overdue_by(0)

    def is_overdue_by(self, beats: int) -> bool:
        """Return True if its last heartbeat is older than its timeout plus this many of its heartbeat intervals."""
        return is_lease_over(self.silent_seconds, self.timeout_seconds + beats * self.heartbeat_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The number of registered workers, the late workers among them, and unregistered workers that hold locks."""

    size: int
    late: list[LateWorker]
    # The ids of workers of this package that hold locks and are not registered, so they are dead. Each call reads only
    # some of the locks.
    orphans: list[str]
    # Where the next call continues to read the locks (``go_on_at``); None after the last lock.
    reached: float | None


class Exhausted(NamedTuple):
    """A job that has no attempt left because its workers died too often, and how long the last one held it."""

    job: Job
    seconds: float

    @property
    def error(self) -> WorkerDiedError:
        name, _, message = (self.job.last_error or "").partition(": ")
        return WorkerDiedError(message or name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The dead workers, jobs and queues of one recovery."""

    dead_worker_ids: tuple[str, ...] = ()
    job_ids: tuple[int, ...] = ()
    queue_ids: tuple[int, ...] = ()
    # Whether there may be more jobs of the same workers: then recover again at once.
    is_partial: bool = False
    # The jobs that have no attempt left.
    exhausted: tuple[Exhausted, ...] = ()
    # The jobs that were cancelled while the workers held them. They have ended, and are not in job_ids.
    cancelled: tuple[CancelledJob, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlocked:
    """The number of stale locks that were released, and the jobs among them that have no attempt left."""

    jobs: int
    queues: int
    exhausted: tuple[Exhausted, ...] = ()
    # The jobs that were cancelled while the workers held them. They have ended, and are not counted.
    cancelled: tuple[CancelledJob, ...] = ()


def read_fleet(
    cursor: Any,
    *,
    schema: str,
    timeout: float,
    heartbeat: float = DEFAULT_HEARTBEAT,
    now: datetime | None = None,
    go_on_at: float | None = None,
) -> Fleet:
    """Return the workers that are late, and the unregistered workers that hold locks older than ``timeout``.

    ``timeout`` and ``heartbeat`` apply to workers whose rows do not state their own. ``now`` is the time of the jobs;
    the database's clock measures the age of heartbeats.
    """
    # A simulation that owns the time of the server, too, replaces "moment".
    parameters = {"timeout": timeout, "heartbeat": heartbeat, "moment": None, "now": now, "go_on_at": go_on_at}
    cursor.execute(statement(READ_FLEET, schema), parameters)
    rows = cursor.fetchall()
    size, orphans, reached = rows[0][5:]
    late = [LateWorker(*row[:5]) for row in rows if row[0] is not None]
    return Fleet(size=size, late=late, orphans=orphans or [], reached=reached)


def remove_dead_workers(cursor: Any, dead: Sequence[LateWorker], *, schema: str, by: str | None = None) -> list[str]:
    """Remove dead workers from the register; return the ids of workers without a heartbeat since they were read.

    ``by``, here and below, is the id of the worker that recovers, for the event.
    """
    if not dead:
        return []
    beats = {"worker_ids": [worker.id for worker in dead], "beats": [worker.beaten_at for worker in dead]}
    parameters = {**beats, "by": by}
    cursor.execute(statement(REMOVE_DEAD_WORKERS, schema), parameters)
    return [row[0] for row in cursor.fetchall()]


def recover_claims(
    cursor: Any,
    worker_ids: Sequence[str],
    *,
    schema: str,
    limit: int = MAX_RECOVERED,
    now: datetime | None = None,
    keeping: ResultKeeping = NOTHING_KEPT,
    by: str | None = None,
) -> Recovered:
    """Release the jobs and queues of workers that are no longer registered, and record the lost attempts."""
    if not worker_ids:
        return Recovered()
    dead = list(worker_ids)
    cancelled = end_cancelled_claims_of(cursor, dead, schema=schema, now=now, keeping=keeping)
    parameters = {"worker_ids": dead, "limit": limit, "poison_limit": POISON_LIMIT, "now": now, "by": by}
    cursor.execute(statement(RECOVER_JOBS, schema), {**parameters, **keeping.parameters()})
    rows = cursor.fetchall()
    cursor.execute(statement(RECOVER_QUEUES, schema), {"worker_ids": dead})
    queue_ids = tuple(row[0] for row in cursor.fetchall())
    return Recovered(
        dead_worker_ids=tuple(dead),
        job_ids=tuple(row[0] for row in rows),
        queue_ids=queue_ids,
        is_partial=len(rows) >= limit,
        exhausted=_exhausted(cursor, rows, schema=schema),
        cancelled=cancelled,
    )


def recover(
    cursor: Any,
    dead: Sequence[LateWorker] | None = None,
    *,
    schema: str,
    timeout: float,
    limit: int = MAX_RECOVERED,
    now: datetime | None = None,
    keeping: ResultKeeping = NOTHING_KEPT,
    by: str | None = None,
) -> Recovered:
    """Remove these workers, by default all silent workers; recover their claims, and claims of unregistered workers."""
    fleet = read_fleet(cursor, schema=schema, timeout=timeout, now=now)
    silent = [late for late in fleet.late if late.is_silent] if dead is None else dead
    worker_ids = remove_dead_workers(cursor, silent, schema=schema, by=by)
    while True:
        worker_ids += [worker_id for worker_id in fleet.orphans if worker_id not in worker_ids]
        if fleet.reached is None:
            return recover_claims(cursor, worker_ids, schema=schema, limit=limit, now=now, keeping=keeping, by=by)
        fleet = read_fleet(cursor, schema=schema, timeout=timeout, now=now, go_on_at=fleet.reached)


def _exhausted(cursor: Any, rows: Iterable[Sequence[Any]], *, schema: str) -> tuple[Exhausted, ...]:
    """Return the jobs among the recovered ones that have no attempt left, as they were while a worker held them."""
    holds = {job_id: hold for job_id, is_exhausted, *hold, _ in rows if is_exhausted}
    if not holds:
        return ()
    cursor.execute(statement(EXHAUSTED_JOBS, schema), {"ids": list(holds)})
    exhausted = []
    for job in jobs_from(cursor, cursor.fetchall(), schema=schema):
        locked_by, locked_at, seconds = holds[job.id]
        held = dataclasses.replace(job, locked_by=locked_by, locked_at=locked_at)
        exhausted.append(Exhausted(held if settings.USE_TZ else with_naive_times(held), max(seconds, 0.0)))
    return tuple(exhausted)


def release_stale_locks(
    cursor: Any,
    *,
    schema: str,
    now: datetime | None = None,
    keeping: ResultKeeping = NOTHING_KEPT,
    by: str | None = None,
) -> Unlocked:
    """Release the jobs and queues that unregistered workers have held for hours."""
    cancelled = end_cancelled_claims_of(
        cursor, None, schema=schema, older_than=STALE_LOCK_SECONDS, now=now, keeping=keeping
    )
    locks = {"stale": STALE_LOCK_SECONDS, "now": now, "by": by}
    cursor.execute(statement(RELEASE_STALE_JOBS, schema), {**locks, **keeping.parameters()})
    jobs = cursor.fetchall()
    cursor.execute(statement(RELEASE_STALE_QUEUES, schema), locks)
    queues = len(cursor.fetchall())
    return Unlocked(
        jobs=len(jobs), queues=queues, exhausted=_exhausted(cursor, jobs, schema=schema), cancelled=cancelled
    )


def forget_ended(cursor: Any, *, schema: str) -> None:
    """Delete the records of worker deaths for deleted jobs, and the markers and requests of claims that have ended."""
    cursor.execute(statement(FORGET_ENDED, schema))
