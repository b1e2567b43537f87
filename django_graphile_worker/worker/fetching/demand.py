"""How many jobs to claim beyond the free slots, and how many slots run them, from how long the last jobs took.

One slot runs the jobs, as long as they are so short that it keeps up. Python runs one thread at a time. A thread that
computes gives Python's global lock up every five milliseconds, to one of the threads that wait for it. If ten slots run
jobs of ten microseconds, each of them waits for nearly all of the time, and so do the thread that claims and the thread
that releases. Until their turn, after fifty milliseconds, the slots have run all jobs that were claimed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.pool.line import size_of
from django_graphile_worker.worker.pool.pool import Pool

# Jobs: earlier jobs count for as many as this. Otherwise, a few jobs that were interrupted would change the mean of
# thousands.
MEMORY = 50

# How many jobs to claim.

# Seconds: claim ahead the jobs that the slots finish in this time.
HORIZON = 0.05
# The same if all claims have been full for this long: a claim has a fixed cost, and under such a backlog the other
# workers have enough to do. A job that has to run before the others waits about as long.
BACKLOG_HORIZON = 0.2
# Seconds: jobs that take longer than the horizon, and no longer than this, are claimed ahead only while there is a
# backlog: all claims have been full for as long as a job takes. After one full claim, other workers may have free
# slots, which would start the next jobs sooner. Longer jobs are never claimed ahead.
LONGEST_AHEAD = 0.5
# Seconds that a claim takes at most, with few exceptions: the waiting jobs must last as long.
CLAIM_SECONDS = 0.0125
# Seconds of work that is claimed from a queue at once; then other workers and queues have their turn.
QUEUE_HORIZON = 0.1
# The largest total size of the payloads of claimed jobs that have not begun. The claim statement counts bytes; here,
# characters stand for bytes.
BYTES_AHEAD = 16 * 1024 * 1024

# How many slots to call.

# Seconds: one slot keeps up with jobs that keep it busy for less than this.
SHORT_JOB = 0.000075
# Seconds: a job of this length is worth another slot.
WORTH_A_SLOT = 0.0001
# Seconds between two looks at the slots, while jobs wait and slots rest.
SECOND_LOOK = 0.002
# Seconds without a look at which no job had finished, after which slots rest again: while one job in a hundred is long,
# a single slot would often stand still until the next look.
CALM = 0.5


class MeanDuration:
    """The mean duration of the last jobs, which follows a change within a few dozen jobs."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._jobs = 0

    def add(self, jobs: int, seconds: float) -> None:
        """Add jobs that took this long together."""
        if jobs:
            earlier = min(self._jobs, MEMORY)
            self.seconds = ((self.seconds or 0.0) * earlier + seconds) / (earlier + jobs)
            self._jobs += jobs

    def forget(self) -> None:
        """Forget all jobs."""
        self.seconds, self._jobs = None, 0


class Prefetch:
    """Limits of the next claim, from what the pool has measured."""

    def __init__(self, pool: Pool, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._clock = clock
        # Since when each claim has found as many jobs as it asked for.
        self._full_since: float | None = None
        self._duration = MeanDuration()
        self._size = 1
        self._finished = 0
        self._busy = 0.0

    def ahead(self, limit: int) -> int:
        """Return how many jobs to claim beyond the free slots."""
        seconds = self._measure()
        if seconds is None:
            return 0
        room = min(limit, BYTES_AHEAD // self._size)
        return min(room, int(self._pool.concurrency * self._horizon(seconds) / max(seconds, 1e-6)))

    def _horizon(self, seconds: float) -> float:
        """Return for how many seconds of work to claim jobs ahead that take this long."""
        if seconds > LONGEST_AHEAD:
            return 0.0
        full_for = 0.0 if self._full_since is None else self._clock() - self._full_since
        if full_for > max(seconds, BACKLOG_HORIZON):
            return BACKLOG_HORIZON
        return HORIZON if seconds <= HORIZON or full_for > seconds else 0.0

    def note_claim(self, *, is_full: bool) -> None:
        """Note whether a claim has found as many jobs as it asked for."""
        if not is_full:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = self._clock()

    def low_water(self, ahead: int) -> int:
        """Return how many waiting jobs are so few that the next claim must begin, if ``ahead`` jobs may wait.

        They keep the slots busy during the claim. The fewer they are, the more jobs a claim brings.
        """
        most = ahead * 3 // 4
        seconds = self._duration.seconds
        if seconds is None:
            return most
        return min(most, int(self._pool.concurrency * CLAIM_SECONDS / max(seconds, 1e-6)))

    def per_queue(self, limit: int) -> int:
        """Return how many jobs of one queue to claim at once."""
        seconds = self._measure()
        if seconds is None:
            return 1
        return max(1, min(limit, int(QUEUE_HORIZON / max(seconds, 1e-6))))

    def bytes_left(self) -> int:
        """Return how many bytes the payloads of the next claim may have together, beyond the free slots."""
        return max(BYTES_AHEAD - self._pool.waiting_size, 0)

    def fitting(self) -> int:
        """Return how many jobs of the last claim's average size fit into ``bytes_left()``."""
        return self.bytes_left() // self._size

    def weigh(self, claims: Sequence[Claim]) -> None:
        """Note the average size of payloads: thousands of large payloads must not wait in memory."""
        self._size = max(size_of(claims) // len(claims), 1)

    def slow_down(self) -> None:
        """Forget the measurement: claimed jobs did not begin in time, so it is no longer valid."""
        self._duration.forget()

    def _measure(self) -> float | None:
        finished, busy = self._pool.totals()
        if finished > self._finished:
            self._duration.add(finished - self._finished, busy - self._busy)
            self._finished, self._busy = finished, busy
        return self._duration.seconds


class SlotDemand:
    """Calls slots, and has slots rest, as the durations of the last jobs require."""

    def __init__(self, pool: Pool, *, clock: Callable[[], float] = time.monotonic) -> None:
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
