"""The ticks that items with a backfill period have missed: found, and made up a stretch at a time."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django_graphile_worker.crontab import CronItem, occurrences
from django_graphile_worker.sql.crontabs import KnownCrontab
from django_graphile_worker.worker.service import jittered

MINUTE = timedelta(minutes=1)
MOMENT = timedelta(microseconds=1)
# Bytes of payload in one statement, for items whose payload is large.
STRETCH_SIZE = 4_000_000
# Minutes for which a callable is asked in one step.
CALLABLE_SPAN = timedelta(days=1)
# Another session is firing the same item; how long until the next look.
YIELD_WAIT = 0.5

Ticks = tuple[datetime, ...]


@dataclass(slots=True)
class Backlog:
    """The missed ticks of one item: those later than ``after``, up to now."""

    item: CronItem
    after: datetime
    # The row's last_execution, as last read or written: the claim on the stretch.
    seen: datetime | None


class Backlogs:
    """How far each item with a backfill period has come, and what is to be made up."""

    def __init__(
        self,
        items: Iterable[CronItem],
        *,
        known: Callable[[Iterable[str]], Mapping[str, KnownCrontab]],
        backfill: Callable[[Backlog, Ticks, datetime], bool],
        on_backfilled: Callable[[CronItem, Ticks], None],
        on_trouble: Callable[[CronItem, Exception], None],
        stretch: int,
    ) -> None:
        self._filling = [item for item in items if item.period]
        self._known = known
        self._backfill = backfill
        self._on_backfilled = on_backfilled
        self._on_trouble = on_trouble
        self._stretch = stretch
        # By item: every tick up to here has been fired, by whomever.
        self._done: dict[str, datetime] = {}
        self._backlogs: deque[Backlog] = deque()

    def begin(self, known: Mapping[str, KnownCrontab]) -> None:
        """Start from what the database knows."""
        for item in self._filling:
            self._done[item.name] = _last_done(known[item.name])

    @property
    def behind(self) -> frozenset[str]:
        """The items that have something to make up, which comes before the tick of this minute."""
        return frozenset(backlog.item.name for backlog in self._backlogs)

    def note_minute(self, minute: datetime, undecided: Container[str]) -> None:
        """All items but these are done with this minute."""
        behind = self.behind
        names = (item.name for item in self._filling if item.name not in behind and item.name not in undecided)
        self._done.update((name, minute) for name in names)

    def note_tick(self, items: Iterable[CronItem], tick: datetime) -> None:
        """The tick of these items has been fired, by whomever."""
        names = [item.name for item in items if item.period]
        self._done.update((name, max(self._done[name], tick)) for name in names)

    def find(self, minute: datetime, now: datetime) -> None:
        """Look for missed ticks, unless the last minute seen was the one before."""
        behind = self.behind
        late = [item for item in self._filling if item.name not in behind and self._may_be_late(item, minute)]
        if not late:
            return
        known = self._known(item.name for item in late)
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

    def make_up(self, minute: datetime) -> float:
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
        if self._backfill(backlog, ticks, minute):
            backlog.seen = ticks[-1]
            self._advance(backlog, ticks[-1], minute)
            self._on_backfilled(backlog.item, ticks)
            return 0.0
        self._look_again(backlog, minute)
        return jittered(YIELD_WAIT)

    def _next_stretch(self, backlog: Backlog, minute: datetime) -> tuple[Ticks, datetime]:
        """The oldest missed ticks, and how far the search went if there are none."""
        item, until = backlog.item, minute
        if not isinstance(item.match, str):
            until = min(until, backlog.after + CALLABLE_SPAN)
        limit = max(1, min(self._stretch, STRETCH_SIZE // len(repr(item.payload))))
        try:
            return tuple(itertools.islice(occurrences(item, backlog.after, until), limit)), until
        except Exception as error:  # a callable is the user's code
            self._on_trouble(item, error)
            return (), minute

    def _advance(self, backlog: Backlog, after: datetime, minute: datetime) -> None:
        """Note how far a backlog is made up; at the end its item is on time again."""
        backlog.after = after
        if after >= minute:
            self._backlogs.remove(backlog)
            self._done[backlog.item.name] = minute

    def _look_again(self, backlog: Backlog, minute: datetime) -> None:
        """Somebody else fired the item: go on from where they are."""
        name = backlog.item.name
        row = self._known([name]).get(name)
        if row is None:
            # Forgotten by hand, so it is new: nothing of it has been missed.
            self._advance(backlog, minute, minute)
        else:
            backlog.seen = row.last_execution
            self._advance(backlog, max(backlog.after, _last_done(row)), minute)


def _floor(instant: datetime) -> datetime:
    return instant.astimezone(UTC).replace(second=0, microsecond=0)


def _last_done(known: KnownCrontab) -> datetime:
    """The last minute of which nothing is left to do: of a new item, the one before it became known.

    An item that was resumed after a pause is known since then, and what it missed is not made up.
    """
    before_it_was_known = _floor(known.known_since - MOMENT)
    if known.last_execution is None:
        return before_it_was_known
    return max(_floor(known.last_execution), before_it_was_known)
