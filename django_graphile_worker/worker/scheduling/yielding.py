"""What this worker leaves for a while: schedules that other workers fire, and what could not be fired.

All workers find the same schedules due. If all of them computed and fired the same, five workers would take several
times as long as one. So a worker begins with few, and reads more when it has won them. One that has lost them yields:
once a second it looks at a few schedules. While they are others than before, another worker is at it. If they are the
same, that worker has died or is slow, and whoever looks first fires them. If even that fails, a session that is no
worker has locked them, and this worker reads those that are free.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django_graphile_worker.sql.schedules.firing import DUE, DUE_FREE, DUE_LATEST, Due, DueItem, DueSchedule
from django_graphile_worker.worker.service import jittered

# How many schedules a round reads: of a worker that has won those that it read last, of one that begins, and of one
# that looks whether another is at work.
MAX_READ = 2_000
FIRST_READ = 100
LOOK = 20
# Seconds until a worker that yields looks again, and how often it yields in a row at most.
YIELD_WAIT = 1.0
MAX_YIELDS = 10
# If there are schedules that are later than this, every other round begins with the others: a long series of ticks that
# is made up for must not make the others late, too.
LATE = timedelta(seconds=20)
# Seconds until what failed is tried again, unless it is changed.
RETRY_AFTER = 30.0
# Seconds until something is tried again whose job needs a row that another session has locked. They double.
FIRST_LOCKED_WAIT = 0.4


class Yielding:
    """What the next round of this worker reads, and whether it leaves that to other workers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # How many schedules, and which, the next round reads.
        self.max_schedules = FIRST_READ
        self.text = DUE
        self._seen: frozenset[object] = frozenset()
        self._yields = 0
        self._yields_until = 0.0

    @property
    def wait(self) -> float:
        """The seconds until this worker looks again; zero if it does not yield."""
        return max(self._yields_until - self._clock(), 0.0) if self._yields else 0.0

    def is_of_others(self, due: Due) -> bool:
        """Return whether another worker is firing what is due; then this one yields again."""
        is_moving = len(due.schedules) == LOOK and self._seen.isdisjoint(_marks(due.schedules))
        if not 0 < self._yields < MAX_YIELDS or not is_moving:
            return False
        self._yield_with(due.schedules)
        return True

    def note(self, due: Due, *, has_lost: bool) -> bool:
        """Note whether others had most of what was read; return whether the next round begins at once."""
        is_full = len(due.schedules) == self.max_schedules
        has_yielded, self._yields = self._yields > 0, 0
        if has_lost and is_full and not has_yielded:
            self._yield_with(due.schedules)
            return False
        self.max_schedules = MAX_READ if is_full else FIRST_READ
        self.text = self._next_text(due, is_full=is_full, is_locked=has_lost)
        return is_full

    def _yield_with(self, due: Sequence[DueSchedule]) -> None:
        self._seen = _marks(due[:LOOK])
        self._yields += 1
        self._yields_until = self._clock() + jittered(YIELD_WAIT)
        self.max_schedules, self.text = LOOK, DUE

    def _next_text(self, due: Due, *, is_full: bool, is_locked: bool) -> str:
        if not is_full:
            return DUE
        if is_locked or self.text == DUE_FREE:
            return DUE_FREE
        oldest: datetime = due.schedules[0].next_at or due.now
        return DUE_LATEST if self.text == DUE and due.now - oldest > LATE else DUE


def _marks(due: Sequence[DueSchedule]) -> frozenset[object]:
    return frozenset((each.id, each.next_at) for each in due)


class _Refusal(NamedTuple):
    revision: int
    retry_at: float
    wait: float


class Refusals:
    """What could not be fired, by its key, and when it is tried again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._refusals: dict[int | str, _Refusal] = {}

    def __contains__(self, key: int | str) -> bool:
        return key in self._refusals

    def note_failure(self, due: DueSchedule | DueItem) -> bool:
        """Note that something failed; return whether that is news."""
        known = self._refusals.get(due.key)
        self._note(due, RETRY_AFTER)
        return known is None or known.revision != due.revision or known.wait < RETRY_AFTER

    def note_lock(self, due: DueSchedule | DueItem) -> None:
        """Note that a row which a job needs is locked."""
        known = self._refusals.get(due.key)
        self._note(due, FIRST_LOCKED_WAIT if known is None else min(known.wait * 2, RETRY_AFTER / 2))

    def forget(self, key: int | str) -> None:
        """Forget what was noted: it was fired."""
        self._refusals.pop(key, None)

    def left_out(self) -> dict[int | str, int]:
        """Return the revisions, by key, of what is not tried now."""
        now = self._clock()
        return {key: each.revision for key, each in self._refusals.items() if each.retry_at > now}

    def left_out_schedules(self) -> dict[int, int]:
        return {key: revision for key, revision in self.left_out().items() if isinstance(key, int)}

    def until_retry(self) -> float:
        """Return the seconds until the first of them is tried again."""
        now = self._clock()
        return min((each.retry_at - now for each in self._refusals.values() if each.retry_at > now), default=math.inf)

    def _note(self, due: DueSchedule | DueItem, wait: float) -> None:
        self._refusals[due.key] = _Refusal(due.revision, self._clock() + wait, wait)
