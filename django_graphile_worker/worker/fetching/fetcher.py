"""The fetcher: claims jobs as soon as there are any, and no more than the slots will run within moments.

From how long the last jobs took, ``Prefetch`` says how many jobs to claim beyond the free slots, and ``SlotDemand`` how
many slots run them. One slot runs the jobs, as long as they are so short that it keeps up. Python runs one thread at a
time. A thread that computes gives Python's global lock up every five milliseconds, to one of the threads that wait for
it. If ten slots run jobs of ten microseconds, each of them waits for nearly all of the time, and so do the thread that
claims and the thread that releases. Until their turn, after fifty milliseconds, the slots have run all jobs that were
claimed.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.sql.claims import Claim, Claimed
from django_graphile_worker.worker.pool.line import line_up, size_of
from django_graphile_worker.worker.pool.pool import Pool
from django_graphile_worker.worker.service import Loop

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# Seconds after which claimed jobs that have not begun are returned.
WAITING_TIMEOUT = 0.5
# Seconds. A job that falls due later than this is added without a notification, so a worker that listens must poll at
# least this often.
ANNOUNCED_AHEAD = 10.0

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
# Seconds between two adjustments of the slots, while jobs wait and slots rest.
ADJUST_INTERVAL = 0.002
# Seconds in which every adjustment has found finished jobs, after which slots rest again: while one job in a hundred is
# long, a single slot would often stand still until the next adjustment.
CALM = 0.5


class Fetcher(Loop):
    """The only poll loop of a worker.

    It has no thread of its own: the threads of the pool run it in turns. The thread that claimed a job can run it, and
    another continues the loop.
    """

    name = "fetcher"

    def __init__(self, worker: DatabaseWorker) -> None:
        super().__init__(on_trouble=worker.reports.database_trouble)
        self._worker = worker
        self._pool = worker.pool
        self._listener = worker.listener
        settings = worker.settings
        self._poll_interval = (
            min(settings.poll_interval, ANNOUNCED_AHEAD) if settings.listen else settings.poll_interval
        )
        self._local_queue_size = settings.local_queue_size
        self._prefetch = Prefetch(worker.pool)
        self._demand = SlotDemand(worker.pool)
        self._expected_at = math.inf
        self._claim_at = -math.inf
        self._waiting_timeout = WAITING_TIMEOUT
        self._is_new = True
        self.last_claim_was_empty = True
        # Seconds for which the next turn rests before its first round; None before the first turn.
        self._delay: float | None = None
        self._has_started = False
        self._is_over = threading.Event()
        self._is_over.set()

    def start(self) -> None:
        """Have the pool run the loop, once; a loop that was stopped before never starts."""
        if not self._has_started and not self.is_stopping:
            self._has_started = True
            self._is_over.clear()
            self._pool.turns.share(self._run_turn)

    @property
    def has_started(self) -> bool:
        return self._has_started

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; return True when the loop is over."""
        return self._is_over.wait(timeout)

    @property
    def has_died(self) -> bool:
        """Has the loop ended without ``stop()``?"""
        return self._has_started and self._is_over.is_set() and not self.is_stopping

    def step(self) -> float:
        """Fill the slots; return the seconds until there may be more to claim."""
        if self._has_started_due_jobs():
            # The next step decides how long to wait. This thread may have a job to run first.
            return 0.0
        self._return_waiting()
        self.adjust_slots()
        self.last_claim_was_empty = True
        if not self.was_called and self._until_next_claim() > 0:
            # This step only had to check the slots.
            return min(self._longest_wait(), self._until_next_claim())
        room = self._room()
        if room < 1:
            return self._longest_wait()
        self._claim_at = -math.inf
        if not self._worker.may_claim():
            # Nothing wakes the fetcher when the worker has its lease again, and this check needs no statement.
            return min(WAITING_TIMEOUT, self._poll_interval)
        return self._claim(room)

    def adjust_slots(self) -> None:
        """Change the number of slots that run jobs, if these take longer or less long than expected."""
        self._demand.adjust()

    def expect(self, seconds: float) -> None:
        """Claim again after this many seconds, when a job falls due."""
        self._expected_at = min(self._expected_at, time.monotonic() + seconds)
        self.wake()

    def return_all_jobs(self) -> None:
        """Return every job that has not begun, now."""
        self._waiting_timeout = 0.0
        self.hurry()

    def wake(self) -> None:
        super().wake()
        if self._listener is not None:
            self._listener.interrupt()

    def pause(self, delay: float) -> bool:
        """Wait where notifications arrive."""
        if self._listener is None:
            return super().pause(delay)
        return self._listener.wait(delay, unless=self.was_woken)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._worker.claimer.close()

    def _run_turn(self) -> bool:
        """Run the loop until the thread has kept a job to run (return True), or until it is stopped (return False)."""
        has_kept = False
        try:
            while not has_kept and not self._stopping.is_set():
                if self._delay is not None:
                    self._rest_was_called = self.rest(self._delay)
                self._delay = self.round()
                has_kept = self._pool.turns.kept is not None
            return has_kept
        finally:
            if not has_kept:
                self.close()
                self._is_over.set()

    def _has_started_due_jobs(self) -> bool:
        """Try the fast path if the worker is idle and was called: mostly a single job is due then."""
        is_new, self._is_new = self._is_new, False
        was_woken_early = self.was_called and self._until_next_claim() > 0
        if self._waiting_timeout < WAITING_TIMEOUT or not (is_new or was_woken_early):
            return False
        if not self._worker.may_claim():
            return False
        seconds_until_next = self._worker.fast_path.start_due_jobs()
        if seconds_until_next is None:
            return False
        if self._worker.limited is not None:
            # The notification may have announced limited jobs, too.
            self._worker.limited.keeper.call()
        self.last_claim_was_empty = False
        self._prefetch.note_claim(is_full=False)
        self._expected_at = min(self._expected_at, time.monotonic() + seconds_until_next)
        return True

    def _room(self) -> int:
        """Return how many jobs to claim: for the free slots, and a few more if jobs are short."""
        pool = self._pool
        ahead = self._prefetch.ahead(self._local_queue_size)
        pool.low_water = self._prefetch.low_water(ahead)
        pool.wants_jobs = False
        if pool.backlog > pool.low_water:
            # Skip small claims while enough jobs are buffered: a claim has a fixed cost.
            return 0
        return pool.free + max(min(ahead - pool.backlog, self._prefetch.fitting()), 0)

    def _claim(self, room: int) -> float:
        self._expected_at = math.inf
        worker = self._worker
        worker.reports.claim_started()
        started = time.perf_counter()
        claimer = worker.claimer if worker.limited is None else worker.limited.claimer
        claimed = claimer.claim(
            max_jobs=room,
            max_per_queue=self._prefetch.per_queue(self._local_queue_size),
            max_bytes=self._prefetch.bytes_left(),
            free_slots=self._pool.free,
        )
        self.last_claim_was_empty = not claimed.claims and not claimed.has_more
        self._prefetch.note_claim(is_full=len(claimed.claims) >= room)
        self._submit(claimed.claims, time.perf_counter() - started)
        return self._delay_after(claimed)

    def _submit(self, claims: list[Claim], duration: float) -> None:
        if claims:
            self._prefetch.weigh(claims)
            self._pool.submit(line_up(claims), callers=self._demand.callers())
            self._worker.reports.jobs_claimed(claims, duration)
        else:
            self._worker.reports.nothing_claimed(duration)

    def _delay_after(self, claimed: Claimed) -> float:
        if claimed.has_more:
            self._claim_at = -math.inf
            # A slot that takes a waiting job wakes the fetcher.
            return self._longest_wait() if claimed.waits_for_slot and not claimed.claims else 0.0
        # No job is left that a free slot could run: a slot that becomes free need not wake the fetcher.
        # A notification, a released queue or the end of the delay leads to the next claim.
        self._pool.wants_jobs = True
        until_next = math.inf if claimed.seconds_until_next is None else claimed.seconds_until_next
        self._claim_at = time.monotonic() + min(self._poll_interval, until_next)
        return max(min(self._longest_wait(), self._until_next_claim()), 0.0)

    def _until_next_claim(self) -> float:
        """Return the seconds until the database may have a job, if nothing wakes the fetcher before."""
        return min(self._claim_at, self._expected_at) - time.monotonic()

    def _longest_wait(self) -> float:
        """Return the longest time to the next step.

        Jobs that wait behind a long job must go to another slot, or be returned, in time, however rare the polls are.
        """
        if self._pool.could_do_more:
            return min(ADJUST_INTERVAL, self._poll_interval)
        return min(WAITING_TIMEOUT, self._poll_interval) if self._pool.has_waiting else self._poll_interval

    def _return_waiting(self) -> None:
        timeout, self._waiting_timeout = self._waiting_timeout, WAITING_TIMEOUT
        with self._pool.removal_lock:
            waiting = self._pool.remove_waiting(waited_longer_than=timeout)
            if waiting:
                self._prefetch.slow_down()
                self._worker.return_jobs(waiting)


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
        # What was measured last, and when.
        self._measured_at = self._stood_still_at = -math.inf
        self._finished = pool.finished()
        self._seconds = 0.0

    def callers(self) -> int:
        """Return how many slots to call for new jobs, before they are put in the line."""
        if self._pool.backlog:
            # The slots that run the jobs before them find the new jobs, and the next adjustment follows soon.
            return 0
        self._measure()
        seconds = self._duration.seconds
        if seconds is None:
            return self._pool.concurrency
        return 1 if seconds < SHORT_JOB else math.ceil(seconds / WORTH_A_SLOT) + 1

    def adjust(self) -> None:
        """Call more slots for jobs that take longer than expected, and have slots rest that short jobs do not need."""
        if not self._pool.backlog or self._clock() - self._measured_at < ADJUST_INTERVAL:
            return
        jobs, seconds, slots = self._measure()
        if not jobs:
            self._stood_still_at = self._measured_at
        if not jobs or seconds / jobs >= SHORT_JOB:
            self._pool.call(self._pool.concurrency)
        elif not slots:
            self._pool.call(1)
        elif slots > 1 and self._measured_at - self._stood_still_at > CALM:
            self._pool.rest(slots - 1)

    def _measure(self) -> tuple[int, float, int]:
        """Return how many jobs have finished since the last call, their seconds, and how many slots run more."""
        before, self._finished = self._finished, self._pool.finished()
        seconds_before, self._seconds = self._seconds, self._pool.typical_seconds()
        self._measured_at = self._clock()
        jobs, seconds = sum(self._finished) - sum(before), self._seconds - seconds_before
        self._duration.add(jobs, seconds)
        return jobs, seconds, self._pool.running_since(before)
