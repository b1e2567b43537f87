"""Finds the ticks that items with a backfill period have missed, and fires some of them at each step."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from django_graphile_worker.crontab import CronItem, occurrences
from django_graphile_worker.sql.schedules.from_code import KnownCrontab
from django_graphile_worker.worker.service import jittered

MINUTE = timedelta(minutes=1)
MOMENT = timedelta(microseconds=1)
# The largest total size of the payloads in one statement: an item with a large payload fires fewer ticks at once.
MOST_BYTES_PER_STATEMENT = 4_000_000
# The time span for which a callable is called in one step, minute by minute.
CALLABLE_SPAN = timedelta(days=1)
# Seconds until the next try of an item that another session is firing.
YIELD_WAIT = 0.5

Ticks = tuple[datetime, ...]


@dataclass(slots=True)
class Backlog:
    """The missed ticks of one item: all ticks later than ``after``, up to now."""

    item: CronItem
    after: datetime
    # The row's last_execution, as last read or written. A backfill that finds another value there does nothing.
    seen: datetime | None


class BacklogSource(Protocol):
    """What backlogs need from the database, and what they report. ``Cron`` implements it."""

    def known_crontabs(self, names: Iterable[str]) -> Mapping[str, KnownCrontab]:
        """Read the rows of these items."""

    def backfill(self, backlog: Backlog, ticks: Ticks, minute: datetime) -> bool:
        """Fire missed ticks; return False if another session has fired the item since it was read."""

    def backfilled(self, item: CronItem, ticks: Ticks) -> None:
        """Report missed ticks that were fired."""

    def item_failed(self, item: CronItem, error: Exception) -> None:
        """Report the error of a callable of the site, which decides when the item is due."""


class Backlogs:
    """The last fired minute of each item with a backfill period, and the ticks that it has missed."""

    def __init__(self, items: Iterable[CronItem], source: BacklogSource, *, ticks_per_statement: int) -> None:
        self._filling = [item for item in items if item.period]
        self._source = source
        self._ticks_per_statement = ticks_per_statement
        # By item: every tick up to this minute has been fired, by this worker or another.
        self._done: dict[str, datetime] = {}
        self._backlogs: deque[Backlog] = deque()

    def begin(self, known: Mapping[str, KnownCrontab]) -> None:
        """Start from the rows of the items in the database."""
        for item in self._filling:
            self._done[item.name] = last_done(known[item.name])

    @property
    def behind(self) -> frozenset[str]:
        """The names of the items with a backlog, whose ticks come before the tick of this minute."""
        return frozenset(backlog.item.name for backlog in self._backlogs)

    def note_minute(self, minute: datetime, undecided: Container[str]) -> None:
        """Note that all items without a backlog, except the undecided, have fired this minute."""
        behind = self.behind
        names = (item.name for item in self._filling if item.name not in behind and item.name not in undecided)
        self._done.update((name, minute) for name in names)

    def note_tick(self, items: Iterable[CronItem], tick: datetime) -> None:
        """Note that the tick of these items has been fired, by this worker or another."""
        names = [item.name for item in items if item.period]
        self._done.update((name, max(self._done[name], tick)) for name in names)

    def find(self, minute: datetime, now: datetime) -> None:
        """Find missed ticks. An item whose ticks up to the last minute have been fired has none."""
        behind = self.behind
        late = [item for item in self._filling if item.name not in behind and self._may_be_late(item, minute)]
        if not late:
            return
        known = self._source.known_crontabs(item.name for item in late)
        for item in late:
            if item.name in known:
                row = known[item.name]
                oldest = whole_minute(now - item.period - MOMENT)
                after = max(self._done[item.name], last_done(row), oldest)
                self._backlogs.append(Backlog(item, after, row.last_execution))

    def _may_be_late(self, item: CronItem, minute: datetime) -> bool:
        done = self._done[item.name]
        if minute - done <= MINUTE:
            return False
        if not isinstance(item.match, str):
            return True
        return any(True for _ in occurrences(item, done, minute - MINUTE))

    def fire_some(self, minute: datetime) -> float:
        """Fire some ticks of the backlog whose turn it is; return the seconds until the next call."""
        if not self._backlogs:
            return math.inf
        # Move the backlog to the end first: a backlog that the database rejects must not delay the others.
        self._backlogs.rotate(-1)
        backlog = self._backlogs[-1]
        ticks, until = self._next_ticks(backlog, minute)
        if not ticks:
            self._advance(backlog, until, minute)
            return 0.0
        if self._source.backfill(backlog, ticks, minute):
            backlog.seen = ticks[-1]
            self._advance(backlog, ticks[-1], minute)
            self._source.backfilled(backlog.item, ticks)
            return 0.0
        self._look_again(backlog, minute)
        return jittered(YIELD_WAIT)

    def _next_ticks(self, backlog: Backlog, minute: datetime) -> tuple[Ticks, datetime]:
        """Return the oldest missed ticks, and how far the search went if there are none."""
        item, until = backlog.item, minute
        if not isinstance(item.match, str):
            until = min(until, backlog.after + CALLABLE_SPAN)
        limit = max(1, min(self._ticks_per_statement, MOST_BYTES_PER_STATEMENT // len(repr(item.payload))))
        try:
            return tuple(itertools.islice(occurrences(item, backlog.after, until), limit)), until
        except Exception as error:  # a callable is the site's code
            self._source.item_failed(item, error)
            return (), minute

    def _advance(self, backlog: Backlog, after: datetime, minute: datetime) -> None:
        """Note how far a backlog has been fired; at its end the item is on time again."""
        backlog.after = after
        if after >= minute:
            self._backlogs.remove(backlog)
            self._done[backlog.item.name] = minute

    def _look_again(self, backlog: Backlog, minute: datetime) -> None:
        """Read the row of an item that another session has fired, and continue from its last tick."""
        name = backlog.item.name
        row = self._source.known_crontabs([name]).get(name)
        if row is None:
            # The row was deleted by hand, so the item is new and has missed nothing.
            self._advance(backlog, minute, minute)
        else:
            backlog.seen = row.last_execution
            self._advance(backlog, max(backlog.after, last_done(row)), minute)


def whole_minute(instant: datetime) -> datetime:
    return instant.astimezone(UTC).replace(second=0, microsecond=0)


def last_done(known: KnownCrontab) -> datetime:
    """Return the last minute whose ticks have been fired; for a new item, the minute before it became known.

    An item that was resumed after a pause counts as known since then: the ticks during the pause are not fired.
    """
    before_it_was_known = whole_minute(known.known_since - MOMENT)
    if known.last_execution is None:
        return before_it_was_known
    return max(whole_minute(known.last_execution), before_it_was_known)
