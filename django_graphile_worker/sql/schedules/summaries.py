"""Reads what the schedules of a database name: for checks, which report each name once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import text_array
from django_graphile_worker.sql.schema import statement

# How many different names one statement returns.
MOST_NAMES = 1_000

TASKS = f"""/* gw:schedule-tasks */
select schedule.task, min(schedule.name), count(*)
from only :SCHEMA._private_schedules as schedule where schedule.is_enabled
group by schedule.task order by schedule.task limit {MOST_NAMES}"""

TIMES = f"""/* gw:schedule-times */
select schedule.cron, schedule.time_zone, min(schedule.name), count(*)
from only :SCHEMA._private_schedules as schedule where schedule.is_enabled
group by schedule.cron, schedule.time_zone order by 3 limit {MOST_NAMES}"""

CLASHES = f"""/* gw:schedule-clashes */
select schedule.name from only :SCHEMA._private_schedules as schedule
where schedule.name = any (%(identifiers)s::text[])
    or exists (select from :SCHEMA._private_known_crontabs as known where known.identifier = schedule.name)
order by schedule.name limit {MOST_NAMES}"""


class NamedTask(NamedTuple):
    """A task that enabled schedules have, the first of them, and how many they are."""

    task: str
    schedule: str
    number: int


class NamedTimes(NamedTuple):
    """A cron line and a time zone that enabled schedules have, the first of them, and how many they are."""

    cron: str | None
    time_zone: str
    schedule: str
    number: int


def named_tasks(cursor: Any, *, schema: str) -> list[NamedTask]:
    cursor.execute(statement(TASKS, schema), {})
    return [NamedTask(*row) for row in cursor.fetchall()]


def named_times(cursor: Any, *, schema: str) -> list[NamedTimes]:
    cursor.execute(statement(TIMES, schema), {})
    return [NamedTimes(*row) for row in cursor.fetchall()]


def clashes(cursor: Any, identifiers: Iterable[str], *, schema: str) -> list[str]:
    """Return the names of schedules that are also identifiers of crontab items, given or known to the database."""
    cursor.execute(statement(CLASHES, schema), {"identifiers": text_array(identifiers)})
    return [row[0] for row in cursor.fetchall()]
