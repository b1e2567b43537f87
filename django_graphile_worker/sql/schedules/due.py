"""Reads the schedules that are due, and when the next schedule is due. Keeps no lock."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.schedules.times import MOMENT, Definition, Former
from django_graphile_worker.sql.codecs import int_array, text_array
from django_graphile_worker.sql.cron.crontabs import microseconds_of, moment_of
from django_graphile_worker.sql.schema import statement

# How late a schedule is before workers that do not know its task move it on.
LEFT_TO_OTHERS = timedelta(minutes=1)

_TIMES = ("next_at", "counts_from", "paused_until", "last_tick", "anchor_at", "run_at", "starts_at", "ends_at")
# The names of times in former_times.
_PERIOD = ("after", "until")
_DURATIONS = ("interval", "missed_within")
_TEXTS = ("name", "task", "cron", "time_zone", "queue_name", "job_key", "missed", "overlap")
_NUMBERS = ("id", "revision", "priority", "max_attempts", "is_from_code")


def _time(column: str) -> str:
    """Return an expression for a time as a number, null for an infinite time."""
    return f"""case when schedule.{column} > timestamptz '0001-01-01 00:00:00+00'
            and schedule.{column} < timestamptz '9999-12-31 00:00:00+00'
            then {microseconds_of(f"schedule.{column}")} end"""


_COLUMNS = ",\n        ".join(
    [f"schedule.{name}" for name in (*_NUMBERS, *_TEXTS)]
    + [f"{_time(name)} as {name}" for name in _TIMES]
    + [f'{microseconds_of(f"""schedule."{name}" """)} as "{name}"' for name in _DURATIONS]
    + ["schedule.payload::text as payload", "schedule.former_times::text as former_times"]
)

# The index of next_at has all that is due at its beginning, and the next time behind it. The first row is there even if
# nothing is due. A schedule whose task this worker does not know is left to others for a while.
_DUE = f"""/* gw:due-schedules */
with clock as materialized (select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()) as now)
select {microseconds_of("clock.now")}, later.next_at, due.*
from clock
left join lateral (
    select {microseconds_of("schedule.next_at")} as next_at from only :SCHEMA._private_schedules as schedule
    where schedule.next_at > clock.now and schedule.next_at < timestamptz '9999-12-31 00:00:00+00'
    order by schedule.next_at limit 1
) as later on true
left join lateral (
    select {_COLUMNS}
    from only :SCHEMA._private_schedules as schedule
    where schedule.next_at <= clock.now
        and (schedule.task <> all (%(unknown)s::text[])
            or schedule.next_at <= clock.now - %(left_to_others)s::float8 * interval '1 second')
        and not exists (
            select from rows from (pg_catalog.unnest(%(failing)s::bigint[]), pg_catalog.unnest(%(revisions)s::int[]))
                as failing(id, revision)
            where failing.id = schedule.id and failing.revision = schedule.revision)
    order by schedule.next_at {{order}} limit %(most)s::int {{lock}}
) as due on true"""
DUE = _DUE.format(order="", lock="")
DUE_LATEST = _DUE.format(order="desc", lock="")
# The locks end with the statement, so another session waits for one read at most.
DUE_FREE = _DUE.format(order="", lock="for no key update of schedule skip locked")


class DueSchedule(Frozen):
    """A schedule that was due when it was read. A change of the definition increments its revision."""

    id: int
    revision: int
    name: str
    task: str
    definition: Definition
    # None: to be computed, from counts_from on and from the end of a pause.
    next_at: datetime | None
    counts_from: datetime
    paused_until: datetime | None
    last_tick: datetime | None
    missed: str
    missed_within: timedelta | None
    overlap: str
    queue_name: str | None
    priority: int | None
    max_attempts: int | None
    is_from_code: bool
    job_key: str | None
    # As text of JSON.
    payload: str


class Due(Frozen):
    """What was read: the time of the database, the schedules that are due, and when the next schedule is due."""

    now: datetime
    schedules: tuple[DueSchedule, ...]
    # None if no other schedule will be due.
    next_at: datetime | None


def read_due(
    cursor: Any,
    *,
    schema: str,
    most: int,
    unknown_tasks: Sequence[str] = (),
    failing: Mapping[int, int] | None = None,
    now: datetime | None = None,
    text: str = DUE,
) -> Due:
    """Read the schedules that are due, at most so many.

    ``unknown_tasks`` are the tasks that this process does not know, ``failing`` the revisions of the schedules, by id,
    that are to be left out. ``text`` is ``DUE``, which reads the longest due first, ``DUE_LATEST``, which reads them
    last, or ``DUE_FREE``, which leaves out those that another session has locked.
    """
    failing = failing or {}
    parameters = {
        "now": now,
        "most": most,
        "unknown": text_array(unknown_tasks),
        "left_to_others": LEFT_TO_OTHERS.total_seconds(),
        "failing": int_array(failing),
        "revisions": int_array(failing.values()),
    }
    cursor.execute(statement(text, schema), parameters)
    rows = cursor.fetchall()
    moment, later = rows[0][:2]
    schedules = tuple(_schedule(row[2:]) for row in rows if row[2] is not None)
    return Due(now=moment_of(moment), schedules=schedules, next_at=None if later is None else moment_of(later))


_NAMES = (*_NUMBERS, *_TEXTS, *_TIMES, *_DURATIONS, "payload", "former_times")


def _schedule(row: Sequence[Any]) -> DueSchedule:
    values = _read(dict(zip(_NAMES, row, strict=True)))
    former = json.loads(values.pop("former_times"))
    definition = _take_definition(values)
    if former:
        since = max(filter(None, (values["counts_from"], values["paused_until"] and values["paused_until"] - MOMENT)))
        definition = replace(definition, former=tuple(map(_former, former)), counts_from=since)
    return DueSchedule(**values, definition=definition)


def _read(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of columns with their numbers as times and durations."""
    for name, value in values.items():
        if value is not None and name in (*_TIMES, *_PERIOD):
            values[name] = moment_of(value)
        elif value is not None and name in _DURATIONS:
            values[name] = timedelta(microseconds=value)
    return values


def _take_definition(values: dict[str, Any]) -> Definition:
    names = ("cron", "interval", "run_at", "time_zone", "starts_at", "ends_at", "anchor_at")
    return Definition(**{name: values.pop(name) for name in names})


def _former(row: dict[str, Any]) -> Former:
    values = _read(row)
    return Former(_take_definition(values), values["after"], values["until"])
