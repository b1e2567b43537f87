"""Recurring tasks of the code: items of the crontab with their rows in the known crontabs, and tasks with an interval.

An item has one row, in the known crontabs, which means what it means to graphile-worker's own workers: they may share
it. The row says since when the item is known, and which tick was fired last; what the item is, and when it is due, only
the code says, and two sites may say it differently. A worker writes the rows that are missing when it starts. A paused
item has infinity as its last execution, so no worker fires it. ``firing`` moves the row.

A task with an interval has a schedule, which workers write and delete, and people pause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django_graphile_worker.sql.codecs import int_array, microseconds_of, moment_of, text_array, within_python_years
from django_graphile_worker.sql.schedules.changes import set_now
from django_graphile_worker.sql.schedules.firing import BOUNDED_WAIT, DueSchedule
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
    """The row of an item of the crontab."""

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
    return {name: _known(name, *rest) for name, *rest in cursor.fetchall()}


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


# A join, because `= any` would compare every name with every row. Takes no lock.
DUE = f"""/* gw:cron:due */
select name.identifier, known.identifier is null, {microseconds_of(within_python_years("known.known_since"))},
    {microseconds_of(within_python_years("known.last_execution"))}, coalesce(known.last_execution = 'infinity', false)
from rows from (pg_catalog.unnest(%(identifiers)s::text[]), pg_catalog.unnest(%(ticks)s::bigint[]))
    as name(identifier, tick)
left join :SCHEMA._private_known_crontabs as known on known.identifier = name.identifier
where known.last_execution is distinct from pg_catalog.to_timestamp(name.tick)"""


def unfired(cursor: Any, ticks: Mapping[str, datetime], *, schema: str) -> dict[str, KnownCrontab | None]:
    """Return the rows of the items whose last tick is not exactly this one; None for a row that was deleted."""
    seconds = (int(tick.timestamp()) for tick in ticks.values())
    cursor.execute(statement(DUE, schema), {"identifiers": text_array(ticks), "ticks": int_array(seconds)})
    return {name: None if is_gone else _known(name, *rest) for name, is_gone, *rest in cursor.fetchall()}


def _known(name: str, since: int, last: int | None, is_paused: bool) -> KnownCrontab:
    return KnownCrontab(
        identifier=name,
        known_since=moment_of(since),
        last_execution=None if last is None else moment_of(last),
        is_paused=is_paused,
    )


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
