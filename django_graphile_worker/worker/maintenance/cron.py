"""Adds the jobs of the crontab: a job for every tick of an item, and jobs for missed ticks.

Nothing is decided by this process's memory or clock alone. The database's clock decides which minute it is (the
worker's own clock only with USE_LOCAL_TIME), and the item's row in the database holds its last tick: each statement
updates that row and adds the jobs, or does neither. Whichever process dies, pauses or restarts, the next step of any
worker finds the true state.

An item is either on time, and then only the tick of this minute is due, or it has a backlog: missed ticks within its
``backfill_period``, fired oldest first and a limited number per step, so that a year of missed ticks delays no other
item.

No statement here waits for the row of an item: a row that another session has locked is left out, and tried again
until its tick is known to be fired.
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
from django_graphile_worker.sql.codecs import naive
from django_graphile_worker.sql.schedules import from_code, runs
from django_graphile_worker.sql.schedules.from_code import KnownCrontab
from django_graphile_worker.worker.maintenance.cron_backlog import MINUTE, YIELD_WAIT, Backlog, Backlogs, Ticks
from django_graphile_worker.worker.maintenance.cron_missed import missed_ticks, write_down
from django_graphile_worker.worker.maintenance.cron_pending_ticks import UndecidedTicks
from django_graphile_worker.worker.service import Service, Trouble, jittered

# The largest number of missed ticks that one statement fires: it takes a few hundredths of a second.
TICKS_PER_STATEMENT = 200
# The largest number of items in one statement: it takes a tenth of a second, for which their rows are locked.
MOST_AT_ONCE = 2000
# The longest wait in seconds, shorter than a minute: a process does not notice that its machine was suspended.
LONGEST_WAIT = 15.0

Item = TypeVar("Item")


class CursorSource(Protocol):
    """The source of cursors: in autocommit mode, and usable again after an error."""

    def cursor(self) -> AbstractContextManager[Any]: ...
    def close(self) -> None: ...


def utc_now() -> datetime:
    return datetime.now(UTC)


def _send_nothing(signal: Any, **arguments: Any) -> None:
    """Drop a signal: the default for a Cron outside a worker."""


class Cron(Service):
    """The service that fires the items of a crontab. Several workers share the work, through the database only.

    It is also the ``BacklogSource`` of its ``Backlogs``.
    """

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
        send: Callable[..., None] = _send_nothing,
        database_now: Callable[[], datetime | None] = lambda: None,
        ticks_per_statement: int = TICKS_PER_STATEMENT,
        on_trouble: Trouble | None = None,
    ) -> None:
        super().__init__(on_trouble=on_trouble)
        self.items = tuple(items)
        self._timetable = Timetable(self.items)
        self._database = database
        self._schema = schema
        # Returns the time for the statements, or None to use the clock of the database.
        self._statement_now = now if use_local_time else database_now
        self._notify = notify
        self._send = send
        self._is_registered = False
        # The last minute whose ticks were fired.
        self._minute: datetime | None = None
        self._backlogs = Backlogs(self.items, self, ticks_per_statement=ticks_per_statement)
        self._undecided = UndecidedTicks()

    def step(self) -> float:
        """Fire the ticks of this minute and some of a backlog; return the seconds until the next step."""
        if not self.items:
            return math.inf
        began = time.monotonic()
        now = self._read_clock()
        if not self._is_registered:
            self._register(now)
        minute = now.replace(second=0, microsecond=0)
        is_over = minute == self._minute or self._fire(minute, now)
        pause = min(self._retry_undecided(), self._backlogs.fire_some(minute))
        if not is_over:
            return 0.0
        rest = (minute + MINUTE - now).total_seconds() - (time.monotonic() - began)
        return min(max(rest, 0.001), LONGEST_WAIT, pause)

    def close(self) -> None:
        self._database.close()

    def _read_clock(self) -> datetime:
        with self._database.cursor() as cursor:
            return from_code.database_now(cursor, now=self._statement_now())

    def _register(self, now: datetime) -> None:
        names = [item.name for item in self.items]
        known = self.known_crontabs(names)
        missing = [name for name in names if name not in known]
        if missing:
            self._make_known(missing)
            known = self.known_crontabs(names)
        self._report_missed(known, now)
        with self._database.cursor() as cursor:
            runs.forget_runs(cursor, schema=self._schema)
        self._backlogs.begin(known)
        self._is_registered = True
        self._send(signals.cron_started, items=self.items)

    def _report_missed(self, known: Mapping[str, KnownCrontab], now: datetime) -> None:
        """Report ticks that were missed and are not backfilled; of several workers, one reports them."""
        for missed in missed_ticks(self.items, known, now):
            with self._database.cursor() as cursor:
                is_news = write_down(cursor, missed, schema=self._schema)
            if is_news:
                ticks = {"first_tick": _for_receivers(missed.first), "last_tick": _for_receivers(missed.last)}
                self._send(signals.cron_missed, identifier=missed.item.name, number=missed.number, **ticks)

    def known_crontabs(self, names: Iterable[str]) -> Mapping[str, KnownCrontab]:
        with self._database.cursor() as cursor:
            return from_code.known_crontabs(cursor, names, schema=self._schema)

    def _make_known(self, names: Sequence[str]) -> None:
        """Register items, all at once, or in parts if another session is registering some of them."""
        try:
            with self._database.cursor() as cursor:
                from_code.register(cursor, names, schema=self._schema, since=self._statement_now())
        except psycopg.errors.LockNotAvailable:
            if len(names) == 1:
                raise
            for part in halves(names):
                self._make_known(part)

    def _fire(self, minute: datetime, now: datetime) -> bool:
        """Fire this minute's ticks of all items without a backlog; return False if the minute has not begun yet."""
        if self._minute is not None and minute - self._minute > MINUTE:
            # The process was suspended, or did not reach the database.
            self._report_missed(self.known_crontabs(item.name for item in self.items), now)
        self._undecided.begin(minute)
        self._backlogs.find(minute, now)
        behind = self._backlogs.behind
        due = [item for item in self._timetable.due(minute, self.item_failed) if item.name not in behind]
        if self._undecided:
            self._undecided.add(minute, [item for item in due if item.name in self._undecided])
            due = [item for item in due if item.name not in self._undecided]
        if due and not self._fire_all(due, minute):
            return False
        self._minute = minute
        self._backlogs.note_minute(minute, self._undecided)
        return True

    def _fire_all(self, items: Sequence[CronItem], tick: datetime) -> bool:
        """Fire one tick of these items; return False if it is not due yet.

        Raise the first error of an item that the database rejects, after the other items were fired.
        """
        rejections: list[psycopg.Error] = []
        starts = range(0, len(items), MOST_AT_ONCE)
        outcomes = [self._fire_some(items[at : at + MOST_AT_ONCE], tick, rejections) for at in starts]
        if rejections:
            raise rejections[0]
        return all(outcomes)

    def _fire_some(self, items: Sequence[CronItem], tick: datetime, rejections: list[psycopg.Error]) -> bool:
        """Fire items in ever smaller parts: an item that is rejected, or whose job key is locked, delays no other."""
        try:
            return self._schedule(items, tick)
        except psycopg.Error as error:
            if isinstance(error, psycopg.OperationalError) and not isinstance(error, psycopg.errors.LockNotAvailable):
                raise
            if len(items) > 1:
                first, second = (self._fire_some(part, tick, rejections) for part in halves(items))
                return first and second
            rejections.append(error)
            return True

    def _schedule(self, items: Sequence[CronItem], tick: datetime) -> bool:
        now = self._statement_now()
        with self._database.cursor() as cursor:
            scheduled = from_code.schedule(cursor, items, tick, schema=self._schema, notify=self._notify, now=now)
        if scheduled.undecided:
            self._undecided.add(tick, [item for item in items if item.name in scheduled.undecided])
        if scheduled.job_ids:
            self._send(signals.cron_scheduled, identifiers=tuple(scheduled.job_ids), tick=_for_receivers(tick))
        return scheduled.is_due

    def _retry_undecided(self) -> float:
        """Try the undecided ticks again; return the seconds until the next try."""
        for tick, items in self._undecided:
            self._undecided.discard(tick, items)
            try:
                self._fire_all(items, tick)
            except BaseException:
                self._undecided.add(tick, items)
                raise
            self._backlogs.note_tick([item for item in items if item.name not in self._undecided], tick)
        return jittered(YIELD_WAIT) if self._undecided else math.inf

    def backfill(self, backlog: Backlog, ticks: Ticks, minute: datetime) -> bool:
        with self._database.cursor() as cursor:
            return from_code.backfill(
                cursor,
                backlog.item,
                ticks,
                seen=backlog.seen,
                late_before=minute,
                schema=self._schema,
                notify=self._notify,
                now=self._statement_now(),
            )

    def backfilled(self, item: CronItem, ticks: Ticks) -> None:
        self._send(signals.cron_backfilled, identifier=item.name, ticks=tuple(map(_for_receivers, ticks)))

    def item_failed(self, item: CronItem, error: Exception) -> None:
        if self._on_trouble is not None:
            self._on_trouble(f"{self.name}: {item.name}", error, 0.0)


def halves(items: Sequence[Item]) -> tuple[Sequence[Item], Sequence[Item]]:
    middle = len(items) // 2
    return items[:middle], items[middle:]


def _for_receivers(tick: datetime) -> datetime:
    """Return a time as the site's receivers expect it: aware only with USE_TZ."""
    return tick if settings.USE_TZ else naive(tick)
