"""Recurring tasks: adds the job of every tick, once, and makes up what was missed.

Nothing is decided by this process's memory or clock alone. The database's clock
says which minute it is (the worker's own only with USE_LOCAL_TIME), and the
item's row in the database says which tick was the last: each statement moves that
row and adds the jobs, or does neither. Whatever dies, pauses or starts over, the
next step of any worker finds out where things stand.

An item is either on time, and then the minute's tick is all there is to do, or it
has a backlog: missed ticks within its ``backfill_period``, taken oldest first, a
bounded stretch per step, so that a year of them holds up no other item.

No statement here waits for the row of an item: a row that another session holds is
left out, and looked at again until its tick is known to be fired.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import psycopg
from django.conf import settings

from django_graphile_worker import signals
from django_graphile_worker.crontab import CronItem, Timetable
from django_graphile_worker.sql import crontab_ticks, crontabs
from django_graphile_worker.sql.codecs import naive
from django_graphile_worker.sql.crontabs import KnownCrontab
from django_graphile_worker.worker.maintenance.cron_backlog import MINUTE, YIELD_WAIT, Backlog, Backlogs, Ticks
from django_graphile_worker.worker.maintenance.cron_pending_ticks import UndecidedTicks
from django_graphile_worker.worker.service import Service, Trouble, jittered

# Ticks that one statement makes up: a few hundredths of a second.
STRETCH = 200
# Items of one statement when many are due at once: a tenth of a second, for which their rows are locked.
MOST_AT_ONCE = 2000
# A machine that slept does not know it: nobody waits longer than this for the next minute.
LONGEST_WAIT = 15.0

Thing = TypeVar("Thing")


class CursorSource(Protocol):
    """Where cursors come from: autocommit, and back by itself after an error."""

    def cursor(self) -> AbstractContextManager[Any]: ...
    def close(self) -> None: ...


def utc_now() -> datetime:
    return datetime.now(UTC)


def _announce_nothing(signal: Any, **arguments: Any) -> None:
    """Without somebody to tell, nothing is told."""


class Cron(Service):
    """One per worker; any number of workers share the work without knowing of each other."""

    name = "cron"

    def __init__(
        self,
        *,
        items: Iterable[CronItem],
        database: CursorSource,
        schema: str,
        now: Callable[[], datetime] = utc_now,
        use_local_time: bool = False,
        notify: bool = True,
        announce: Callable[..., None] = _announce_nothing,
        database_now: Callable[[], datetime | None] = lambda: None,
        stretch: int = STRETCH,
        on_trouble: Trouble | None = None,
    ) -> None:
        super().__init__(on_trouble=on_trouble)
        self.items = tuple(items)
        self._timetable = Timetable(self.items)
        self._database = database
        self._schema = schema
        # What the statements take for the time; None is the database's own clock.
        self._statement_now = now if use_local_time else database_now
        self._notify = notify
        self._announce = announce
        self._is_registered = False
        # The last minute whose ticks were fired.
        self._minute: datetime | None = None
        self._backlogs = Backlogs(
            self.items,
            known=self._known,
            backfill=self._backfill,
            on_backfilled=self._tell_backfilled,
            on_trouble=self._tell_trouble,
            stretch=stretch,
        )
        self._undecided = UndecidedTicks()

    def step(self) -> float:
        """Fire the minute's ticks and one stretch of a backlog; return the seconds until the next."""
        if not self.items:
            return math.inf
        began = time.monotonic()
        with self._database.cursor() as cursor:
            now = crontabs.database_now(cursor, now=self._statement_now())
        if not self._is_registered:
            self._register()
        minute = now.replace(second=0, microsecond=0)
        is_over = minute == self._minute or self._fire(minute, now)
        pause = min(self._decide(), self._backlogs.make_up(minute))
        if not is_over:
            return 0.0
        rest = (minute + MINUTE - now).total_seconds() - (time.monotonic() - began)
        return min(max(rest, 0.001), LONGEST_WAIT, pause)

    def close(self) -> None:
        self._database.close()

    def _register(self) -> None:
        names = [item.name for item in self.items]
        known = self._known(names)
        missing = [name for name in names if name not in known]
        if missing:
            self._make_known(missing)
            known = self._known(names)
        self._backlogs.begin(known)
        self._is_registered = True
        self._announce(signals.cron_started, items=self.items)

    def _known(self, names: Iterable[str]) -> Mapping[str, KnownCrontab]:
        with self._database.cursor() as cursor:
            return crontabs.known_crontabs(cursor, names, schema=self._schema)

    def _make_known(self, names: Sequence[str]) -> None:
        """All at once, or in parts where another session is making some of them known."""
        try:
            with self._database.cursor() as cursor:
                crontabs.register(cursor, names, schema=self._schema, since=self._statement_now())
        except psycopg.errors.LockNotAvailable:
            if len(names) == 1:
                raise
            for part in halves(names):
                self._make_known(part)

    def _fire(self, minute: datetime, now: datetime) -> bool:
        """Fire this minute's ticks of all items without a backlog; False if it is not that late yet."""
        self._undecided.begin(minute)
        self._backlogs.find(minute, now)
        behind = self._backlogs.behind
        due = [item for item in self._timetable.due(minute, self._tell_trouble) if item.name not in behind]
        if self._undecided:
            self._undecided.add(minute, [item for item in due if item.name in self._undecided])
            due = [item for item in due if item.name not in self._undecided]
        if due and not self._fire_all(due, minute):
            return False
        self._minute = minute
        self._backlogs.note_minute(minute, self._undecided)
        return True

    def _fire_all(self, items: Sequence[CronItem], tick: datetime) -> bool:
        """Fire one tick of these items; False if it is not that late yet. Raises what the database refused at last."""
        refusals: list[psycopg.Error] = []
        starts = range(0, len(items), MOST_AT_ONCE)
        outcomes = [self._fire_some(items[at : at + MOST_AT_ONCE], tick, refusals) for at in starts]
        if refusals:
            raise refusals[0]
        return all(outcomes)

    def _fire_some(self, items: Sequence[CronItem], tick: datetime, refusals: list[psycopg.Error]) -> bool:
        """An item that the database refuses, or whose key is locked, must not cost the others their tick."""
        try:
            return self._schedule(items, tick)
        except psycopg.Error as error:
            if isinstance(error, psycopg.OperationalError) and not isinstance(error, psycopg.errors.LockNotAvailable):
                raise
            if len(items) > 1:
                first, second = (self._fire_some(part, tick, refusals) for part in halves(items))
                return first and second
            refusals.append(error)
            return True

    def _schedule(self, items: Sequence[CronItem], tick: datetime) -> bool:
        now = self._statement_now()
        with self._database.cursor() as cursor:
            scheduled = crontab_ticks.schedule(cursor, items, tick, schema=self._schema, notify=self._notify, now=now)
        if scheduled.undecided:
            self._undecided.add(tick, [item for item in items if item.name in scheduled.undecided])
        if scheduled.job_ids:
            self._announce(signals.cron_scheduled, identifiers=tuple(scheduled.job_ids), tick=_told(tick))
        return scheduled.is_due

    def _decide(self) -> float:
        """Try the undecided ticks again; the seconds until the next try."""
        for tick, items in self._undecided:
            self._undecided.discard(tick, items)
            try:
                self._fire_all(items, tick)
            except BaseException:
                self._undecided.add(tick, items)
                raise
            self._backlogs.note_tick([item for item in items if item.name not in self._undecided], tick)
        return jittered(YIELD_WAIT) if self._undecided else math.inf

    def _backfill(self, backlog: Backlog, ticks: Ticks, minute: datetime) -> bool:
        with self._database.cursor() as cursor:
            return crontab_ticks.backfill(
                cursor,
                backlog.item,
                ticks,
                seen=backlog.seen,
                late_before=minute,
                schema=self._schema,
                notify=self._notify,
                now=self._statement_now(),
            )

    def _tell_backfilled(self, item: CronItem, ticks: Ticks) -> None:
        self._announce(signals.cron_backfilled, identifier=item.name, ticks=tuple(map(_told, ticks)))

    def _tell_trouble(self, item: CronItem, error: Exception) -> None:
        if self._on_trouble is not None:
            self._on_trouble(f"{self.name}: {item.name}", error, 0.0)


def halves(things: Sequence[Thing]) -> tuple[Sequence[Thing], Sequence[Thing]]:
    middle = len(things) // 2
    return things[:middle], things[middle:]


def _told(tick: datetime) -> datetime:
    """As the site's receivers know times."""
    return tick if settings.USE_TZ else naive(tick)
