"""Known crontabs: which items there are, when each last fired, and firing one exactly once.

The row of an item is the lock of all its ticks. ``last_execution`` only moves
forward, and whoever moves it past a tick adds that tick's job in the same
statement: there is no moment at which a crash could part the two. The rows mean
what they mean to graphile-worker's own workers, which may share them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.sql.qualification import qualified
from django_graphile_worker.sql.reading import within_python_years as readable
from django_graphile_worker.sql.schema import statement

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _microseconds(moment: str) -> str:
    """A time as a number: text would be written as the session's DateStyle likes it."""
    return f"(extract(epoch from {moment}) * 1000000)::bigint"


CLOCK = f"/* gw:cron:clock */ select {_microseconds('coalesce(%(now)s::timestamptz, clock_timestamp())')}"

KNOWN = f"""/* gw:cron:known */
select identifier, {_microseconds(readable("known_since"))}, {_microseconds(readable("last_execution"))}
from :SCHEMA._private_known_crontabs
where %(identifiers)s::text[] is null or identifier = any (%(identifiers)s::text[])
order by identifier"""

# In name order, so that two workers that start together never wait for each other in a circle.
REGISTER = """/* gw:cron:register */
insert into :SCHEMA._private_known_crontabs (identifier, known_since)
select name.identifier, coalesce(%(now)s::timestamptz, clock_timestamp())
from unnest(%(identifiers)s::text[]) as name(identifier)
order by name.identifier
on conflict (identifier) do nothing"""

_JOBS = """json_to_recordset(%(jobs)s::json) as job(
        place int, identifier text, task text, payload json, queue_name text, run_at timestamptz,
        max_attempts int, job_key text, job_key_mode text, priority int, flags text[])"""

_ADD_JOB = """lateral :SCHEMA.add_job(
        identifier => job.task, payload => job.payload, queue_name => job.queue_name, run_at => job.run_at,
        max_attempts => job.max_attempts, job_key => job.job_key, priority => job.priority,
        flags => job.flags, job_key_mode => coalesce(job.job_key_mode, 'replace'))"""

# Silence must come before the first job is added: what decides about firing asks for it.
_CLOCK = """clock as materialized (
    select coalesce(%(now)s::timestamptz, clock_timestamp()) as now,
        case when not %(notify)s::boolean then set_config('graphile_worker.notify', 'off', true) end as silence
)"""

# The clock of the database has the last word: a tick that is still to come fires for
# nobody, however far ahead a worker's own clock may be.
SCHEDULE = f"""/* gw:cron:schedule */
with {_CLOCK}, won as (
    insert into :SCHEMA._private_known_crontabs as known (identifier, known_since, last_execution)
    select job.identifier, %(tick)s::timestamptz, %(tick)s::timestamptz
    from {_JOBS}
    where %(tick)s::timestamptz <= (select clock.now from clock)
    order by job.identifier
    on conflict (identifier) do update
    set last_execution = excluded.last_execution
    where known.known_since <= excluded.last_execution
        and (known.last_execution is null or known.last_execution < excluded.last_execution)
    returning known.identifier
), added as (
    select job.identifier, job.place, new_job.id
    from (select job.* from {_JOBS} join won using (identifier) order by job.place) as job
    cross join {_ADD_JOB} as new_job
)
select %(tick)s::timestamptz <= clock.now, added.identifier, added.id
from clock left join added on true
order by added.place"""

# Fires a stretch of ticks of one item, if nobody has fired any since last_execution was read.
BACKFILL = f"""/* gw:cron:backfill */
with {_CLOCK}, moved as (
    update :SCHEMA._private_known_crontabs as known
    set last_execution = %(last_tick)s::timestamptz
    from clock
    where known.identifier = %(identifier)s
        and known.last_execution is not distinct from %(seen)s::timestamptz
        and %(last_tick)s::timestamptz <= clock.now
    returning known.identifier
)
select new_job.id
from (select job.* from {_JOBS} join moved using (identifier) order by job.place) as job
cross join {_ADD_JOB} as new_job"""


@dataclass(frozen=True, slots=True)
class KnownCrontab:
    """What the database remembers of an item."""

    identifier: str
    known_since: datetime
    last_execution: datetime | None


class Scheduled(NamedTuple):
    """What became of a tick. One that is not due yet by the database's clock must be tried again."""

    is_due: bool
    job_ids: Mapping[str, int]


def database_now(cursor: Any, *, now: datetime | None = None) -> datetime:
    """The database's clock, as it is now and not as it was when a transaction began."""
    cursor.execute(qualified(CLOCK), {"now": now})
    return _moment(cursor.fetchone()[0])


def known_crontabs(cursor: Any, identifiers: Iterable[str] | None = None, *, schema: str) -> dict[str, KnownCrontab]:
    """The known items, by identifier: those named, or all."""
    names = None if identifiers is None else list(identifiers)
    cursor.execute(statement(KNOWN, schema), {"identifiers": names})
    return {
        name: KnownCrontab(name, _moment(since), None if last is None else _moment(last))
        for name, since, last in cursor.fetchall()
    }


def register(
    cursor: Any, identifiers: Iterable[str], *, schema: str, now: datetime | None = None
) -> dict[str, KnownCrontab]:
    """Make items known from now on; what is known of them, also where others were quicker."""
    names = list(identifiers)
    known = known_crontabs(cursor, names, schema=schema)
    missing = [name for name in names if name not in known]
    if not missing:
        return known
    cursor.execute(statement(REGISTER, schema), {"identifiers": missing, "now": now})
    return known_crontabs(cursor, names, schema=schema)


def schedule(
    cursor: Any,
    items: Iterable[CronItem],
    tick: datetime,
    *,
    schema: str,
    notify: bool = True,
    now: datetime | None = None,
) -> Scheduled:
    """Fire one tick of several items: add the job of each item that nobody has fired for it."""
    jobs = [_job(item, tick, place, backfilled=False) for place, item in enumerate(items)]
    parameters = {"jobs": json.dumps(jobs), "tick": tick, "notify": notify, "now": now}
    cursor.execute(statement(SCHEDULE, schema), parameters)
    rows = cursor.fetchall()
    return Scheduled(rows[0][0], {identifier: job_id for _, identifier, job_id in rows if identifier is not None})


def backfill(
    cursor: Any,
    item: CronItem,
    ticks: Sequence[datetime],
    *,
    seen: datetime | None,
    late_before: datetime,
    schema: str,
    notify: bool = True,
    now: datetime | None = None,
) -> bool:
    """Fire a stretch of ticks of one item at once.

    False, and nothing is added, when the item's ``last_execution`` is no longer
    the one that was ``seen``: somebody else has fired it. Ticks earlier than
    ``late_before`` are told apart as backfilled.
    """
    jobs = [_job(item, tick, place, backfilled=tick < late_before) for place, tick in enumerate(ticks)]
    parameters = {
        "jobs": json.dumps(jobs),
        "identifier": item.name,
        "seen": seen,
        "last_tick": ticks[-1],
        "notify": notify,
        "now": now,
    }
    cursor.execute(statement(BACKFILL, schema), parameters)
    return bool(cursor.fetchall())


def _moment(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def _job(item: CronItem, tick: datetime, place: int, *, backfilled: bool) -> dict[str, Any]:
    stamp = tick.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return {
        "place": place,
        "identifier": item.name,
        "task": item.task,
        "payload": {**(item.payload or {}), "_cron": {"ts": stamp, "backfilled": backfilled}},
        "queue_name": item.queue_name,
        "run_at": stamp,
        "max_attempts": item.max_attempts,
        "job_key": item.job_key,
        "job_key_mode": item.job_key_mode,
        "priority": item.priority,
        "flags": None if item.flags is None else list(item.flags),
    }
