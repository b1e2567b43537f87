"""How many slots run the jobs that wait: one slot, as long as jobs are so short that it keeps up.

Python runs one thread at a time. A thread that computes gives Python's global lock up every five milliseconds, to one
of the threads that wait for it. If ten slots run jobs of ten microseconds, each of them waits for nearly all of the
time, and so do the thread that claims and the thread that releases. Until their turn, after fifty milliseconds, the
slots have run all jobs that were claimed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from django_graphile_worker.worker.fetching.mean_duration import MeanDuration
from django_graphile_worker.worker.pool.slot_pool import SlotPool

# Seconds: one slot keeps up with jobs that keep it busy for less than this.
SHORT_JOB = 0.000075
# Seconds: a job of this length is worth another slot.
WORTH_A_SLOT = 0.0001
# Seconds between two looks at the slots, while jobs wait and slots rest.
SECOND_LOOK = 0.002
# Seconds without a look at which no job had finished, after which slots rest again: while one job in a hundred is long,
# a single slot would often stand still until the next look.
CALM = 0.5


class SlotDemand:
    """Calls slots, and has slots rest, as the durations of the last jobs require."""

    def __init__(self, pool: SlotPool, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._clock = clock
        self._duration = MeanDuration()
        # What the last look has seen, and when.
        self._looked_at = self._stood_still_at = -math.inf
        self._finished = pool.finished()
        self._seconds = 0.0

    def callers(self) -> int:
        """Return how many slots to call for new jobs, before they are put in the line."""
        if self._pool.backlog:
            # The slots that run the jobs before them find the new jobs, and the next look follows soon.
            return 0
        self._look()
        seconds = self._duration.seconds
        if seconds is None:
            return self._pool.concurrency
        return 1 if seconds < SHORT_JOB else math.ceil(seconds / WORTH_A_SLOT) + 1

    def adjust(self) -> None:
        """Call more slots for jobs that take longer than expected, and have slots rest that short jobs do not need."""
        if not self._pool.backlog or self._clock() - self._looked_at < SECOND_LOOK:
            return
        jobs, seconds, slots = self._look()
        if not jobs:
            self._stood_still_at = self._looked_at
        if not jobs or seconds / jobs >= SHORT_JOB:
            self._pool.call(self._pool.concurrency)
        elif not slots:
            self._pool.call(1)
        elif slots > 1 and self._looked_at - self._stood_still_at > CALM:
            self._pool.rest(slots - 1)

    def _look(self) -> tuple[int, float, int]:
        """Return how many jobs have finished since the last look, their seconds, and how many slots run more."""
        before, self._finished = self._finished, self._pool.finished()
        seconds_before, self._seconds = self._seconds, self._pool.typical_seconds()
        self._looked_at = self._clock()
        jobs, seconds = sum(self._finished) - sum(before), self._seconds - seconds_before
        self._duration.add(jobs, seconds)
        return jobs, seconds, self._pool.running_since(before)
