"""Recurring tasks of the code: items of the crontab with their rows in the known crontabs, and tasks with an interval.

The rows of the known crontabs mean what they mean to graphile-worker's own workers, which may share them. The row of an
item is the lock of all its ticks. ``last_execution`` only moves forward, and the statement that moves it past a tick
also adds the job of that tick: a crash cannot separate the two. A paused item has infinity as its last execution, so no
worker fires it.

A task with an interval has a schedule, which workers write and delete, and people pause.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.crontab.items import flags_of_run
from django_graphile_worker.sql.codecs import microseconds_of, moment_of, text_array, within_python_years
from django_graphile_worker.sql.schedules.changes import set_now
from django_graphile_worker.sql.schedules.firing import ADD_JOBS, BOUNDED_WAIT, DueSchedule, clock
from django_graphile_worker.sql.statements import qualified, statement

CLOCK = f"/* gw:cron:clock */ select {microseconds_of('coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp())')}"

_KNOWN = f"""
select identifier, {microseconds_of(within_python_years("known_since"))},
    {microseconds_of(within_python_years("last_execution"))},
    coalesce(last_execution = 'infinity', false)
from :SCHEMA._private_known_crontabs"""

KNOWN = f"""/* gw:cron:known */ {_KNOWN}
order by identifier"""

# A join, because `= any` would compare every name with every row.
KNOWN_NAMED = f"""/* gw:cron:known-named */ {_KNOWN}
join pg_catalog.unnest(%(identifiers)s::text[]) as name(identifier) using (identifier)
order by identifier"""

REGISTER = f"""/* gw:cron:register */
with bound as materialized (select {BOUNDED_WAIT} as milliseconds)
insert into :SCHEMA._private_known_crontabs (identifier, known_since)
select name.identifier, coalesce(%(since)s::timestamptz, pg_catalog.clock_timestamp())
from bound cross join pg_catalog.unnest(%(identifiers)s::text[]) as name(identifier)
where bound.milliseconds is not null
order by name.identifier
on conflict (identifier) do nothing"""


@dataclass(frozen=True, slots=True)
class KnownCrontab:
    """The row of an item."""

    identifier: str
    known_since: datetime
    # For a paused item, the last date that Python can represent: its row has infinity here.
    last_execution: datetime | None
    is_paused: bool = False


def database_now(cursor: Any, *, now: datetime | None = None) -> datetime:
    """Return the time of the database's clock now, not that of the beginning of the transaction."""
    cursor.execute(qualified(CLOCK), {"now": now})
    return moment_of(cursor.fetchone()[0])


def known_crontabs(cursor: Any, identifiers: Iterable[str] | None = None, *, schema: str) -> dict[str, KnownCrontab]:
    """Return the known items with these identifiers, or all, by identifier."""
    if identifiers is None:
        cursor.execute(statement(KNOWN, schema), {})
    else:
        cursor.execute(statement(KNOWN_NAMED, schema), {"identifiers": list(identifiers)})
    return {
        name: KnownCrontab(
            identifier=name,
            known_since=moment_of(since),
            last_execution=None if last is None else moment_of(last),
            is_paused=is_paused,
        )
        for name, since, last, is_paused in cursor.fetchall()
    }


def register(cursor: Any, identifiers: Iterable[str], *, schema: str, since: datetime | None = None) -> None:
    """Make items known from now on, or since a time; items that are known already stay as they are.

    Raise LockNotAvailable when another session is adding one of the items and has not committed in time. The caller can
    then try one name at a time, as often as it takes: such a call holds nothing that the other session could wait for.
    """
    cursor.execute(statement(REGISTER, schema), {"identifiers": list(identifiers), "since": since})


# A paused item has infinity as its last tick, and stays paused.
FORGET_LATER = """/* gw:cron:forget-later */
delete from :SCHEMA._private_known_crontabs as known
where (known.known_since > %(now)s::timestamptz or known.last_execution > %(now)s::timestamptz)
    and known.last_execution is distinct from 'infinity'"""


def forget_later(cursor: Any, *, schema: str, now: datetime) -> None:
    """Forget items that became known, or last fired, after a time: for tests, whose clocks start at any time."""
    cursor.execute(statement(FORGET_LATER, schema), {"now": now})


# The items whose tick has not been fired yet, including items whose rows were deleted. Takes no lock.
OPEN = """/* gw:cron:open */
select %(tick)s::timestamptz <= clock.now, name.identifier, name.is_forgotten
from (select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now) as clock
left join (
    select name.identifier, known.identifier is null as is_forgotten
    from pg_catalog.unnest(%(identifiers)s::text[]) as name(identifier)
    left join :SCHEMA._private_known_crontabs as known on known.identifier = name.identifier
    where known.identifier is null or (known.known_since <= %(tick)s::timestamptz
        and (known.last_execution is null or known.last_execution < %(tick)s::timestamptz))
) as name on true"""

_JOBS = """job as materialized (
    select * from pg_catalog.json_to_recordset(%(jobs)s::json) as job(
        place int, identifier pg_catalog.text, task pg_catalog.text, payload pg_catalog.json,
        queue_name pg_catalog.text, run_at pg_catalog.timestamptz, max_attempts int, job_key pg_catalog.text,
        mode pg_catalog.text, priority int, flags pg_catalog.text[], is_late boolean)
)"""


# What becomes of the jobs is read with these rows: ``sql.schedules.runs``.
_NOTE_RUNS = """noted as (
    insert into :SCHEMA._private_schedule_runs (crontab_identifier, tick, job_id, kind)
    select job.identifier, job.run_at, added.id, case when job.is_late then 'late' else 'on_time' end
    from added join job using (place) order by added.place
)"""

# The clock of the database decides: a tick in the future is not fired, however far ahead a worker's own clock may be.
# Rows that another session has locked are skipped, without a wait: a worker of Node.js locks the same rows in the order
# of its own crontab, and two sessions that wait for each other's rows would be a deadlock.
SCHEDULE = f"""/* gw:cron:schedule */
with {clock()}, {_JOBS}, free as materialized (
    select known.identifier
    from :SCHEMA._private_known_crontabs as known
    where known.identifier in (select job.identifier from job)
        and %(tick)s::timestamptz <= (select clock.now from clock)
        and known.known_since <= %(tick)s::timestamptz
        and (known.last_execution is null or known.last_execution < %(tick)s::timestamptz)
    for update of known skip locked
), won as (
    update :SCHEMA._private_known_crontabs as known
    set last_execution = %(tick)s::timestamptz
    from free
    where known.identifier = free.identifier
    returning known.identifier
), {ADD_JOBS}, {_NOTE_RUNS}
select job.identifier, added.id from added join job using (place) order by added.place"""

# Fires a series of ticks of one item, unless a tick of the item was fired after last_execution was read. The event
# about the late ticks is committed with their jobs.
BACKFILL = f"""/* gw:cron:backfill */
with {clock()}, {_JOBS}, free as materialized (
    select known.identifier
    from :SCHEMA._private_known_crontabs as known
    where known.identifier = %(identifier)s
        and known.last_execution is not distinct from %(seen)s::timestamptz
        and %(last_tick)s::timestamptz <= (select clock.now from clock)
    for update of known skip locked
), won as (
    update :SCHEMA._private_known_crontabs as known
    set last_execution = %(last_tick)s::timestamptz
    from free
    where known.identifier = free.identifier
    returning known.identifier
), event as materialized (
    select :SCHEMA._private_add_event('schedule_backfilled', 1, won.identifier,
        jsonb_build_object('name', won.identifier, 'ticks', %(late)s::int, 'last_tick', %(last_tick)s::timestamptz),
        null, null, true) as id
    from won where %(late)s::int > 0
), {ADD_JOBS}, {_NOTE_RUNS}
select id, (select count(event.id) from event) from added order by place"""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The result of firing a tick. A tick that is not due yet by the database's clock must be tried again."""

    is_due: bool
    job_ids: Mapping[str, int]
    # The items whose rows another session has locked: whether that session fires their tick is known when it has ended.
    undecided: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Open:
    """The items whose tick has not been fired yet."""

    is_due: bool
    names: frozenset[str]
    forgotten: list[str]


def schedule(
    cursor: Any,
    items: Iterable[CronItem],
    tick: datetime,
    *,
    schema: str,
    notify: bool = True,
    now: datetime | None = None,
) -> Scheduled:
    """Fire one tick of several items: add the job of each item whose tick was not fired yet.

    Raise LockNotAvailable, and fire nothing, if a row that the jobs need stays locked by another session.
    """
    chosen = list(items)
    found = _open(cursor, [item.name for item in chosen], tick, schema=schema, now=now)
    if not found.is_due or not found.names:
        return Scheduled(is_due=found.is_due, job_ids={}, undecided=frozenset())
    if found.forgotten:
        register(cursor, found.forgotten, schema=schema, since=tick)
    jobs = [item for item in chosen if item.name in found.names]
    parameters = {"jobs": _jobs(jobs, [tick], tick), "tick": tick, "notify": notify, "now": now}
    cursor.execute(statement(SCHEDULE, schema), parameters)
    job_ids = dict(cursor.fetchall())
    left = found.names - job_ids.keys()
    if left:
        left = _open(cursor, sorted(left), tick, schema=schema, now=now).names
    return Scheduled(is_due=True, job_ids=job_ids, undecided=left)


def _open(cursor: Any, names: list[str], tick: datetime, *, schema: str, now: datetime | None) -> _Open:
    cursor.execute(statement(OPEN, schema), {"identifiers": text_array(names), "tick": tick, "now": now})
    rows = cursor.fetchall()
    return _Open(
        is_due=rows[0][0],
        names=frozenset(name for _, name, _ in rows if name is not None),
        forgotten=[name for _, name, is_forgotten in rows if is_forgotten],
    )


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
    """Fire a series of ticks of one item at once.

    Return False, and add nothing, if the item's ``last_execution`` is no longer ``seen``: another worker has fired the
    item. The jobs of ticks before ``late_before`` are marked as backfilled.
    """
    parameters = {
        "jobs": _jobs([item], ticks, late_before),
        "identifier": item.name,
        "seen": seen,
        "last_tick": ticks[-1],
        "late": sum(tick < late_before for tick in ticks),
        "notify": notify,
        "now": now,
    }
    cursor.execute(statement(BACKFILL, schema), parameters)
    return bool(cursor.fetchall())


def _jobs(items: Sequence[CronItem], ticks: Sequence[datetime], late_before: datetime) -> str:
    """Return the jobs of each item at each tick as JSON."""
    jobs = [_job(item, tick, tick < late_before) for item in items for tick in ticks]
    return json.dumps([{"place": place, **job} for place, job in enumerate(jobs)])


def _job(item: CronItem, tick: datetime, is_late: bool) -> dict[str, Any]:
    stamp = tick.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return {
        "identifier": item.name,
        "task": item.task,
        "payload": {**(item.payload or {}), "_cron": {"ts": stamp, "backfilled": is_late}},
        "queue_name": item.queue_name,
        "run_at": stamp,
        "max_attempts": item.max_attempts,
        "job_key": item.job_key,
        "mode": "replace" if item.job_key is None else item.job_key_mode or "replace",
        "priority": item.priority,
        "flags": flags_of_run(item, tick),
        "is_late": is_late,
    }


PAUSE = """/* gw:cron:pause */
with known as materialized (
    select identifier, last_execution from :SCHEMA._private_known_crontabs
    where identifier = %(identifier)s and last_execution is distinct from 'infinity'
    for update
), kept as (
    insert into :SCHEMA._private_paused_crontabs (identifier, last_execution)
    select identifier, last_execution from known
    on conflict (identifier) do update set last_execution = excluded.last_execution
)
update only :SCHEMA._private_known_crontabs as paused set last_execution = 'infinity'
from known where paused.identifier = known.identifier
returning paused.identifier, :SCHEMA._private_add_event(
    'schedule_paused', 1, paused.identifier, jsonb_build_object('name', paused.identifier))"""

# The item is known from now on: the ticks during the pause are not backfilled.
RESUME = """/* gw:cron:resume */
with kept as (
    delete from only :SCHEMA._private_paused_crontabs where identifier = %(identifier)s returning last_execution
)
update only :SCHEMA._private_known_crontabs as known
set last_execution = (select kept.last_execution from kept), known_since = pg_catalog.clock_timestamp()
where known.identifier = %(identifier)s and known.last_execution = 'infinity'
returning known.identifier, :SCHEMA._private_add_event(
    'schedule_resumed', 1, known.identifier, jsonb_build_object('name', known.identifier))"""

PAUSED = f"""/* gw:cron:paused */
select identifier, {microseconds_of(within_python_years("last_execution"))} from :SCHEMA._private_paused_crontabs"""


def pause(cursor: Any, identifier: str, *, schema: str) -> bool:
    """Pause an item; return False if it is paused already, or has no row in the database."""
    cursor.execute(statement(PAUSE, schema), {"identifier": identifier})
    return cursor.fetchone() is not None


def resume(cursor: Any, identifier: str, *, schema: str) -> bool:
    """Resume an item from now on; return False if it is not paused, or has no row in the database."""
    cursor.execute(statement(RESUME, schema), {"identifier": identifier})
    return cursor.fetchone() is not None


def known_items(cursor: Any, *, schema: str) -> dict[str, KnownCrontab]:
    """Return all known items; ``last_execution`` of a paused item is the value from before the pause, or None."""
    known = known_crontabs(cursor, schema=schema)
    if any(each.is_paused for each in known.values()):
        cursor.execute(statement(PAUSED, schema))
        last_executions = {name: None if last is None else moment_of(last) for name, last in cursor.fetchall()}
        for name, each in known.items():
            if each.is_paused:
                known[name] = replace(each, last_execution=last_executions.get(name))
    return known


# A program may have given it another task.
READ_EVERY = f"""/* gw:schedules-from-code */
select schedule.name, schedule.is_from_code,
    case when schedule.task = schedule.name then {microseconds_of('schedule."interval"')} end
from only :SCHEMA._private_schedules as schedule where schedule.name = any (%(names)s::text[])"""

# Another worker may write the same row at this moment, and a person may take the name.
WRITE_EVERY = f"""/* gw:write-schedules-from-code */
with bound as materialized (select {BOUNDED_WAIT} as milliseconds)
insert into :SCHEMA._private_schedules as schedule (name, task, "interval", overlap, is_from_code)
select given.name, given.name, given.seconds * interval '1 second', 'skip', true
from bound cross join rows from (pg_catalog.unnest(%(names)s::text[]), pg_catalog.unnest(%(seconds)s::float8[]))
    as given(name, seconds)
where bound.milliseconds is not null
order by given.name
on conflict (name) do update set task = excluded.task, "interval" = excluded."interval", cron = null, run_at = null
where schedule.is_from_code"""

# Only if no worker has fired or changed it since it was read, and no session has locked it.
DELETE_EVERY = """/* gw:delete-schedule-from-code */
delete from only :SCHEMA._private_schedules as schedule
where schedule.id = (
    select due.id from only :SCHEMA._private_schedules as due
    where due.id = %(id)s and due.is_from_code and due.revision = %(revision)s and due.next_at = %(next_at)s
    for update skip locked)"""


def write_every(
    cursor: Any, every: Mapping[str, timedelta], *, schema: str, with_changes: bool, now: datetime | None
) -> list[str]:
    """Write the missing schedules of tasks; with ``with_changes``, also those that have another interval.

    Return the names that schedules of people have: they stay as they are. Raise LockNotAvailable if another session has
    locked one of the schedules.
    """
    cursor.execute(statement(READ_EVERY, schema), {"names": text_array(every)})
    found = {
        name: (is_from_code, microseconds and timedelta(microseconds=microseconds))
        for name, is_from_code, microseconds in cursor.fetchall()
    }
    new = {name: interval for name, interval in every.items() if name not in found}
    if with_changes:
        new |= {name: every[name] for name, (is_ours, interval) in found.items() if is_ours and interval != every[name]}
    if new:
        seconds = [interval.total_seconds() for interval in new.values()]
        set_now(cursor, now)
        cursor.execute(statement(WRITE_EVERY, schema), {"names": text_array(new), "seconds": seconds})
        set_now(cursor, None)
    return sorted(name for name, (is_from_code, _) in found.items() if not is_from_code)


def delete_every(cursor: Any, due: DueSchedule, *, schema: str) -> None:
    """Delete a schedule that no worker has in its code any more."""
    values = {"id": due.id, "revision": due.revision, "next_at": due.next_at}
    cursor.execute(statement(DELETE_EVERY, schema), values)
