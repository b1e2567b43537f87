"""Finds ticks that no worker fired, and that none will fire: no worker ran, or none reached the database."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from django_graphile_worker.crontab import CronItem, occurrences
from django_graphile_worker.sql import events
from django_graphile_worker.sql.schedules import runs
from django_graphile_worker.sql.schedules.from_code import KnownCrontab
from django_graphile_worker.worker.maintenance.cron_backlog import MINUTE, MOMENT, last_done, whole_minute

# The largest number of missed ticks of an item that are counted.
MOST_COUNTED = 1_000


@dataclass(frozen=True, slots=True)
class MissedTicks:
    """The ticks of an item that were not fired, and when it was last on time."""

    item: CronItem
    number: int
    first: datetime
    last: datetime
    last_execution: datetime | None
    on_time_until: datetime


def missed_ticks(items: Iterable[CronItem], known: Mapping[str, KnownCrontab], now: datetime) -> Iterator[MissedTicks]:
    """Yield the items with missed ticks that are not backfilled.

    Items that a function of the project decides about are left out: the function would be called for each minute.
    """
    for item in items:
        row = known.get(item.name)
        if row is None or row.is_paused or not isinstance(item.match, str):
            continue
        until = whole_minute(now - item.period - MOMENT) if item.period else whole_minute(now) - MINUTE
        ticks = list(itertools.islice(occurrences(item, last_done(row), until), MOST_COUNTED))
        if ticks:
            yield MissedTicks(item, len(ticks), ticks[0], ticks[-1], row.last_execution, last_done(row))


def write_down(cursor: Any, missed: MissedTicks, *, schema: str) -> bool:
    """Write the event and a run; return False if another worker has written them, or if they cannot be written."""
    last_execution = missed.last_execution
    event = events.NewEvent(
        kind="schedule_missed",
        subject=missed.item.name,
        details={
            "name": missed.item.name,
            "ticks": missed.number,
            "first_tick": missed.first.isoformat(),
            "last_tick": missed.last.isoformat(),
            "last_execution": None if last_execution is None else last_execution.isoformat(),
        },
        identity=missed.on_time_until.isoformat(),
    )
    with suppress(psycopg.Error):
        is_news = events.add(cursor, event, schema=schema)
        if is_news:
            runs.note_missed(cursor, missed.item.name, tick=missed.last, number=missed.number, schema=schema)
        return is_news
    return False
