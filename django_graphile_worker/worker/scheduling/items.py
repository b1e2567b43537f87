"""The items of the crontab of this worker: when each is due next.

This is a memory of what the rows of the items say, and is computed from them when the worker starts, and when the clock
is set back. It says which rows are to be read; the row decides whether a tick is fired.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.crontab.times import MINUTE, floor_minute
from django_graphile_worker.sql.schedules.firing import DueItem
from django_graphile_worker.sql.schedules.from_code import KnownCrontab
from django_graphile_worker.worker.scheduling.decisions import following_tick, last_done
from django_graphile_worker.worker.scheduling.yielding import Refusals
from django_graphile_worker.worker.service import jittered

# Seconds until the next try of an item whose row another session has locked.
HELD_WAIT = 0.5


class CrontabItems:
    """The items, by identifier, and the next tick of each."""

    def __init__(self, items: Iterable[CronItem], refusals: Refusals) -> None:
        self.by_name = {item.name: item for item in items}
        # For how long functions of the project are asked in advance. A worker asks them once a minute.
        self.look_ahead = MINUTE
        self._refusals = refusals
        # All earlier ticks were handled, by this worker or another. An item that is never due again is left out.
        self._next: dict[str, datetime] = {}
        # The items whose row another session had locked: it may be firing their tick, and may still roll back.
        self._held: set[str] = set()
        self._read_at: datetime | None = None

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def has_begun(self, now: datetime) -> bool:
        """Return whether the next ticks are known, and the clock was not set back since."""
        return self._read_at is not None and self._read_at <= now

    def begin(self, known: Mapping[str, KnownCrontab], now: datetime) -> None:
        """Compute the next ticks from the rows of the items."""
        self._read_at = now
        self._held.clear()
        for name, item in self.by_name.items():
            row = known[name]
            done = now - MINUTE if row.is_paused else last_done(row.known_since, row.last_execution)
            self.note(name, following_tick(item, done))

    def due(self, now: datetime) -> dict[str, datetime]:
        """Return the items that are due, with their next ticks: first those on time, in the order of the crontab.

        Those that have missed ticks come last, so that a long series of them makes no other item late.
        """
        self._read_at = now
        minute, left_out = floor_minute(now), self._refusals.left_out()
        due = [(name, tick) for name, tick in self._next.items() if tick <= now and name not in left_out]
        behind = [each for each in due if each[1] < minute]
        behind.sort(key=lambda each: each[1])
        return dict([*(each for each in due if each[1] >= minute), *behind])

    def note(self, name: str, tick: datetime | None) -> None:
        """Note the next tick of an item: all ticks before it were handled."""
        self._refusals.forget(name)
        if tick is None or self._read_at is None or tick > self._read_at:
            self._held.discard(name)
        if tick is None:
            self._next.pop(name, None)
        else:
            self._next[name] = tick

    def with_rows(self, ticks: Mapping[str, datetime], rows: Mapping[str, KnownCrontab | None]) -> Iterator[DueItem]:
        """Yield the items with what their rows say, in the same order; not those whose rows were deleted."""
        for name, tick in ticks.items():
            if (row := rows.get(name)) is not None:
                yield DueItem(
                    self.by_name[name],
                    tick,
                    row.known_since,
                    row.last_execution,
                    is_paused=row.is_paused,
                    is_held=name in self._held,
                )

    def note_fired(self, names: Iterable[str], now: datetime) -> dict[str, datetime]:
        """Note that another worker, or Node.js, has fired the next tick of items; return those that are still due."""
        for name in names:
            self.note(name, following_tick(self.by_name[name], self._next[name]))
        return {name: tick for name in names if (tick := self._next.get(name)) is not None and tick <= now}

    def hold(self, name: str) -> None:
        """Note that another session had locked the row of an item."""
        self._held.add(name)

    @property
    def next_at(self) -> datetime | None:
        """The next tick of all items."""
        return min(self._next.values(), default=None)

    def seconds_until_next(self, now: datetime) -> float:
        """Return the seconds until something is to be done."""
        wait = jittered(HELD_WAIT) if self._held else math.inf
        waiting = self._held | self._refusals.left_out().keys()
        following = min((tick for name, tick in self._next.items() if name not in waiting), default=None)
        until_tick = math.inf if following is None else (following - now).total_seconds()
        return max(min(wait, self._refusals.until_retry(), until_tick), 0.0)
