"""What is done for dead workers: their jobs and queues are freed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from django_graphile_worker.sql.schema import statement
from django_graphile_worker.sql.workers import is_lease_over

if TYPE_CHECKING:
    from django_graphile_worker.sql.exhausted_jobs import Exhausted

# What the original allows a worker that tells nothing of itself.
STALE_LOCK_SECONDS = 4 * 3600
# From this many deaths of its workers on, a job's attempt counts.
POISON_LIMIT = 3
# How many jobs one recovery frees, if it is not told otherwise: the others follow at once.
MOST_RECOVERED = 2000
# What a worker promises that promised nothing and is judged by somebody without a setting of its own.
DEFAULT_HEARTBEAT = 10.0

LOOK_AT_FLEET = """/* gw:look-at-fleet */
select late.worker_id, late.beaten_at, late.silent_seconds, late.timeout_seconds, late.heartbeat_seconds, late.workers,
    orphans.worker_ids, orphans.reached
from :SCHEMA._private_late_workers_v2(
    %(timeout)s::pg_catalog.float8, %(heartbeat)s::pg_catalog.float8, %(moment)s::pg_catalog.timestamptz) as late
cross join :SCHEMA._private_orphans_v2(
    %(timeout)s::pg_catalog.float8, %(now)s::pg_catalog.timestamptz, %(go_on_at)s::pg_catalog.float8) as orphans"""

BURY_WORKERS = """/* gw:bury-workers */
select worker_id
from :SCHEMA._private_bury_workers_v2(
    %(worker_ids)s::pg_catalog.text[], %(beats)s::pg_catalog.float8[]) as worker_id"""

RECOVER_JOBS = """/* gw:recover */
select job_id, is_exhausted, worker_id, held_since, held_seconds
from :SCHEMA._private_recover_jobs_v2(
    %(worker_ids)s::pg_catalog.text[], %(limit)s::pg_catalog.int4, %(poison_limit)s::pg_catalog.int4,
    %(now)s::pg_catalog.timestamptz)"""

RECOVER_QUEUES = """/* gw:recover-queues */
select queue_id from :SCHEMA._private_recover_queues_v2(%(worker_ids)s::pg_catalog.text[]) as queue_id"""

RELEASE_STALE_JOBS = """/* gw:stale-jobs */
select job_id, is_exhausted, worker_id, held_since, held_seconds
from :SCHEMA._private_release_stale_jobs_v2(%(stale)s::pg_catalog.float8, %(now)s::pg_catalog.timestamptz)"""

RELEASE_STALE_QUEUES = """/* gw:stale-queues */
select queue_id from :SCHEMA._private_release_stale_queues_v2(
    %(stale)s::pg_catalog.float8, %(now)s::pg_catalog.timestamptz) as queue_id"""

FORGET_ENDED = "/* gw:forget-ended */ select :SCHEMA._private_forget_ended_v2()"

WAKE_WORKERS = """/* gw:wake */
select pg_catalog.pg_notify('jobs:insert', pg_catalog.json_build_object(
    'r', pg_catalog.random(), 'count', %(count)s::pg_catalog.int4)::pg_catalog.text)"""


class LateWorker(NamedTuple):
    """A worker that has not beaten for half of what it promised; times are seconds, by the database's clock."""

    id: str
    beaten_at: float
    # Negative where the beat lies in the future.
    silent_seconds: float
    timeout_seconds: float
    heartbeat_seconds: float

    @property
    def is_silent(self) -> bool:
        """Whether it has been silent for as long as it promised to be dead after."""
        return self.is_overdue_by(0)

    def is_overdue_by(self, beats: int) -> bool:
        """Return whether it has been silent for that long and for this many of its heartbeat intervals more."""
        return is_lease_over(self.silent_seconds, self.timeout_seconds + beats * self.heartbeat_seconds)


class Fleet(NamedTuple):
    """How many workers are registered, which of them are late, and who holds locks and is not registered."""

    size: int
    late: list[LateWorker]
    # Workers of ours that are not registered, so dead; found among some of the locks.
    orphans: list[str]
    # Where the next look at the locks goes on; None after the last.
    reached: float | None


class Recovered(NamedTuple):
    """What a recovery freed."""

    dead_worker_ids: tuple[str, ...]
    job_ids: tuple[int, ...]
    queue_ids: tuple[int, ...]
    # There may be more jobs of the same workers: recover again at once.
    is_partial: bool
    # Those of the jobs that will not be tried again.
    exhausted: tuple[Exhausted, ...] = ()


class Unlocked(NamedTuple):
    """How many stale locks are gone, and which of the jobs will not be tried again."""

    jobs: int
    queues: int
    exhausted: tuple[Exhausted, ...] = ()


def look_at_fleet(
    cursor: Any,
    *,
    schema: str,
    timeout: float,
    heartbeat: float = DEFAULT_HEARTBEAT,
    now: datetime | None = None,
    go_on_at: float | None = None,
) -> Fleet:
    """Read who is late, and who holds locks that are older than ``timeout`` without being registered.

    Workers that promised nothing are judged by ``timeout`` and ``heartbeat``. ``now`` is the time of the jobs; beats
    go by the database's own.
    """
    parameters = {"timeout": timeout, "heartbeat": heartbeat, "moment": None, "now": now, "go_on_at": go_on_at}
    cursor.execute(statement(LOOK_AT_FLEET, schema), parameters)
    rows = cursor.fetchall()
    size, orphans, reached = rows[0][5:]
    return Fleet(size, [LateWorker(*row[:5]) for row in rows if row[0] is not None], orphans or [], reached)


def bury(cursor: Any, dead: Sequence[LateWorker], *, schema: str) -> list[str]:
    """Remove dead workers from the register; return the ids of those that have not beaten since they were read."""
    if not dead:
        return []
    parameters = {"worker_ids": [worker.id for worker in dead], "beats": [worker.beaten_at for worker in dead]}
    cursor.execute(statement(BURY_WORKERS, schema), parameters)
    return [row[0] for row in cursor.fetchall()]


def free(
    cursor: Any,
    worker_ids: Sequence[str],
    *,
    schema: str,
    limit: int = MOST_RECOVERED,
    now: datetime | None = None,
) -> Recovered:
    """Free what workers held that are not registered any more."""
    if not worker_ids:
        return Recovered((), (), (), is_partial=False)
    dead = list(worker_ids)
    cursor.execute(
        statement(RECOVER_JOBS, schema),
        {"worker_ids": dead, "limit": limit, "poison_limit": POISON_LIMIT, "now": now},
    )
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


def recover(
    cursor: Any,
    dead: Sequence[LateWorker] | None = None,
    *,
    schema: str,
    timeout: float,
    limit: int = MOST_RECOVERED,
    now: datetime | None = None,
) -> Recovered:
    """Free what these workers held; without any given, every worker that is silent at this moment."""
    fleet = look_at_fleet(cursor, schema=schema, timeout=timeout, now=now)
    worker_ids = bury(cursor, [late for late in fleet.late if late.is_silent] if dead is None else dead, schema=schema)
    while True:
        worker_ids += [worker_id for worker_id in fleet.orphans if worker_id not in worker_ids]
        if fleet.reached is None:
            return free(cursor, worker_ids, schema=schema, limit=limit, now=now)
        fleet = look_at_fleet(cursor, schema=schema, timeout=timeout, now=now, go_on_at=fleet.reached)


def _exhausted(cursor: Any, rows: Iterable[Sequence[Any]], *, schema: str) -> tuple[Exhausted, ...]:
    if not any(row[1] for row in rows):
        return ()
    # Here, as it is rare, and would be 2 ms of every start.
    from django_graphile_worker.sql.exhausted_jobs import Hold, exhausted_jobs

    holds = {job_id: Hold(*hold) for job_id, is_exhausted, *hold in rows if is_exhausted}
    return exhausted_jobs(cursor, holds, schema=schema)


def release_stale_locks(
    cursor: Any, *, schema: str, stale: float = STALE_LOCK_SECONDS, now: datetime | None = None
) -> Unlocked:
    """Free what unregistered workers have held for four hours."""
    cursor.execute(statement(RELEASE_STALE_JOBS, schema), {"stale": stale, "now": now})
    jobs = cursor.fetchall()
    cursor.execute(statement(RELEASE_STALE_QUEUES, schema), {"stale": stale, "now": now})
    queues = len(cursor.fetchall())
    return Unlocked(len(jobs), queues, _exhausted(cursor, jobs, schema=schema))


def forget_ended(cursor: Any, *, schema: str) -> None:
    """Drop the deaths of jobs that are gone, and the cancellations of claims that have ended."""
    cursor.execute(statement(FORGET_ENDED, schema))


def wake_workers(cursor: Any, count: int, *, schema: str) -> None:
    cursor.execute(statement(WAKE_WORKERS, schema), {"count": count})
