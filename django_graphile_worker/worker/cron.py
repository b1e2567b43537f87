"""Recurring tasks: adds the job of every tick, once, and makes up what was missed.

Nothing is decided by this process's memory or clock alone. The database's clock
says which minute it is (the worker's own only with USE_LOCAL_TIME), and the
item's row in the database says which tick was the last: each statement moves that
row and adds the jobs, or does neither. Whatever dies, pauses or starts over, the
next step of any worker finds out where things stand.

An item is either on time, and then the minute's tick is all there is to do, or it
has a backlog: missed ticks within its ``backfill_period``, taken oldest first, a
bounded stretch per step, so that a year of them holds up no other item.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import psycopg
from django.conf import settings

from django_graphile_worker import signals
from django_graphile_worker.crontab import CronItem, Timetable, occurrences
from django_graphile_worker.sql import crontabs
from django_graphile_worker.sql.crontabs import KnownCrontab
from django_graphile_worker.sql.naive import naive
from django_graphile_worker.worker.service import Service, Trouble, jittered

MINUTE = timedelta(minutes=1)
MOMENT = timedelta(microseconds=1)
# Ticks that one statement makes up: a few hundredths of a second.
STRETCH = 200
# Bytes of payload in one statement, for items whose payload is large.
STRETCH_SIZE = 4_000_000
# Minutes for which a callable is asked in one step.
CALLABLE_SPAN = timedelta(days=1)
# A machine that slept does not know it: nobody waits longer than this for the next minute.
LONGEST_WAIT = 15.0
# Somebody else is making up the same backlog; let them.
YIELD_WAIT = 0.5


class CursorSource(Protocol):
    """Where cursors come from: autocommit, and back by itself after an error."""

    def cursor(self) -> AbstractContextManager[Any]: ...
    def close(self) -> None: ...


def utc_now() -> datetime:
    return datetime.now(UTC)


def _announce_nothing(signal: Any, **arguments: Any) -> None:
    """Without somebody to tell, nothing is told."""


@dataclass(slots=True)
class Backlog:
    """The missed ticks of one item: those later than ``after``, up to now."""

    item: CronItem
    after: datetime
    # The row's last_execution, as last read or written: the claim on the stretch.
    seen: datetime | None


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
        self._filling = [item for item in self.items if item.period]
        self._database = database
        self._schema = schema
        # What the statements take for the time; None is the database's own clock.
        self._statement_now = now if use_local_time else database_now
        self._notify = notify
        self._announce = announce
        self._stretch = stretch
        self._is_registered = False
        # The last minute whose ticks were fired.
        self._minute: datetime | None = None
        # By item with a backfill period: every tick up to here has been fired, by whomever.
        self._done: dict[str, datetime] = {}
        self._backlogs: deque[Backlog] = deque()

    def step(self) -> float:
        """Fire the minute's ticks and one stretch of a backlog; return the seconds until the next."""
        if not self.items:
            return math.inf
        began = time.monotonic()
        with self._database.cursor() as cursor:
            now = crontabs.database_now(cursor, now=self._statement_now())
            if not self._is_registered:
                self._register(cursor)
            minute = now.replace(second=0, microsecond=0)
            is_over = minute == self._minute or self._fire(cursor, minute, now)
            pause = self._make_up(cursor, minute)
        if not is_over:
            return 0.0
        rest = (minute + MINUTE - now).total_seconds() - (time.monotonic() - began)
        return min(max(rest, 0.001), LONGEST_WAIT, pause)

    def close(self) -> None:
        self._database.close()

    def _register(self, cursor: Any) -> None:
        names = [item.name for item in self.items]
        known = crontabs.register(cursor, names, schema=self._schema, now=self._statement_now())
        for item in self._filling:
            self._done[item.name] = _last_done(known[item.name])
        self._is_registered = True
        self._announce(signals.cron_started, items=self.items)

    def _fire(self, cursor: Any, minute: datetime, now: datetime) -> bool:
        """Fire this minute's ticks of all items without a backlog; False if it is not that late yet."""
        self._find_backlogs(cursor, minute, now)
        behind = {backlog.item.name for backlog in self._backlogs}
        due = [item for item in self._timetable.due(minute, self._tell_trouble) if item.name not in behind]
        if due and not self._schedule(cursor, due, minute):
            return False
        self._minute = minute
        self._done.update((item.name, minute) for item in self._filling if item.name not in behind)
        return True

    def _schedule(self, cursor: Any, items: list[CronItem], minute: datetime) -> bool:
        try:
            scheduled = crontabs.schedule(
                cursor, items, minute, schema=self._schema, notify=self._notify, now=self._statement_now()
            )
        except psycopg.OperationalError:
            raise
        except psycopg.Error:
            if len(items) == 1:
                raise
            return self._schedule_one_by_one(cursor, items, minute)
        if scheduled.job_ids:
            self._announce(signals.cron_scheduled, identifiers=tuple(scheduled.job_ids), tick=_told(minute))
        return scheduled.is_due

    def _schedule_one_by_one(self, cursor: Any, items: list[CronItem], minute: datetime) -> bool:
        """One item that the database refuses must not cost the others their tick."""
        refusals: list[psycopg.Error] = []
        outcomes: list[bool] = []
        for item in items:
            try:
                outcomes.append(self._schedule(cursor, [item], minute))
            except psycopg.OperationalError:
                raise
            except psycopg.Error as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]
        return all(outcomes)

    def _find_backlogs(self, cursor: Any, minute: datetime, now: datetime) -> None:
        """Look for missed ticks, unless the last minute seen was the one before."""
        behind = {backlog.item.name for backlog in self._backlogs}
        late = [item for item in self._filling if item.name not in behind and self._may_be_late(item, minute)]
        if not late:
            return
        known = crontabs.known_crontabs(cursor, [item.name for item in late], schema=self._schema)
        for item in late:
            if item.name in known:
                row = known[item.name]
                oldest = _floor(now - item.period - MOMENT)
                after = max(self._done[item.name], _last_done(row), oldest)
                self._backlogs.append(Backlog(item, after, row.last_execution))

    def _may_be_late(self, item: CronItem, minute: datetime) -> bool:
        done = self._done[item.name]
        if minute - done <= MINUTE:
            return False
        if not isinstance(item.match, str):
            return True
        return any(True for _ in occurrences(item, done, minute - MINUTE))

    def _make_up(self, cursor: Any, minute: datetime) -> float:
        """Fire one stretch of the backlog whose turn it is; the seconds until the next."""
        if not self._backlogs:
            return math.inf
        # First to the end of the line: one that the database refuses must not hold up the others.
        self._backlogs.rotate(-1)
        backlog = self._backlogs[-1]
        ticks, until = self._next_stretch(backlog, minute)
        if not ticks:
            self._advance(backlog, until, minute)
            return 0.0
        if self._backfill(cursor, backlog, ticks, minute):
            backlog.seen = ticks[-1]
            self._advance(backlog, ticks[-1], minute)
            self._announce(signals.cron_backfilled, identifier=backlog.item.name, ticks=tuple(map(_told, ticks)))
            return 0.0
        self._look_again(cursor, backlog, minute)
        return jittered(YIELD_WAIT)

    def _next_stretch(self, backlog: Backlog, minute: datetime) -> tuple[tuple[datetime, ...], datetime]:
        """The oldest missed ticks, and how far the search went if there are none."""
        item, until = backlog.item, minute
        if not isinstance(item.match, str):
            until = min(until, backlog.after + CALLABLE_SPAN)
        limit = max(1, min(self._stretch, STRETCH_SIZE // len(repr(item.payload))))
        try:
            return tuple(itertools.islice(occurrences(item, backlog.after, until), limit)), until
        except Exception as error:  # a callable is the user's code
            self._tell_trouble(item, error)
            return (), minute

    def _backfill(self, cursor: Any, backlog: Backlog, ticks: tuple[datetime, ...], minute: datetime) -> bool:
        return crontabs.backfill(
            cursor,
            backlog.item,
            ticks,
            seen=backlog.seen,
            late_before=minute,
            schema=self._schema,
            notify=self._notify,
            now=self._statement_now(),
        )

    def _advance(self, backlog: Backlog, after: datetime, minute: datetime) -> None:
        """Note how far a backlog is made up; at the end its item is on time again."""
        backlog.after = after
        if after >= minute:
            self._backlogs.remove(backlog)
            self._done[backlog.item.name] = minute

    def _look_again(self, cursor: Any, backlog: Backlog, minute: datetime) -> None:
        """Somebody else fired the item: go on from where they are."""
        name = backlog.item.name
        row = crontabs.known_crontabs(cursor, [name], schema=self._schema).get(name)
        if row is None:
            # Forgotten by hand, so it is new: nothing of it has been missed.
            self._advance(backlog, minute, minute)
        else:
            backlog.seen = row.last_execution
            self._advance(backlog, max(backlog.after, _last_done(row)), minute)

    def _tell_trouble(self, item: CronItem, error: Exception) -> None:
        if self._on_trouble is not None:
            self._on_trouble(f"{self.name}: {item.name}", error, 0.0)


def _floor(instant: datetime) -> datetime:
    return instant.astimezone(UTC).replace(second=0, microsecond=0)


def _told(tick: datetime) -> datetime:
    """As the site's receivers know times."""
    return tick if settings.USE_TZ else naive(tick)


def _last_done(known: KnownCrontab) -> datetime:
    """The last minute of which nothing is left to do: of a new item, the one before it became known."""
    if known.last_execution is not None:
        return _floor(known.last_execution)
    return _floor(known.known_since - MOMENT)
