"""The fetcher: claims jobs as soon as there are any, and no more than the slots will run within moments."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

from django_graphile_worker.sql.claims import Claim, Claimed
from django_graphile_worker.worker.fetching.demand import SECOND_LOOK, Prefetch, SlotDemand
from django_graphile_worker.worker.pool.line import line_up
from django_graphile_worker.worker.service import Loop

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# Seconds after which claimed jobs that have not begun are returned.
WAITING_TIMEOUT = 0.5
# Seconds. A job that falls due later than this is added without a notification, so a worker that listens must poll at
# least this often.
ANNOUNCED_AHEAD = 10.0


class Fetcher(Loop):
    """The only poll loop of a worker.

    It has no thread of its own: the threads of the pool run it in turns. The thread that claimed a job can run it, and
    another continues the loop.
    """

    name = "fetcher"

    def __init__(self, worker: DatabaseWorker) -> None:
        super().__init__(on_trouble=worker.events.database_trouble)
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
        self._look_at = -math.inf
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
            self._pool.turns.share(self._take_turn)

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
        if not self.was_called and self._until_next_look() > 0:
            # This step only had to check the slots.
            return min(self._longest_wait(), self._until_next_look())
        room = self._room()
        if room < 1:
            return self._longest_wait()
        self._look_at = -math.inf
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

    def _take_turn(self) -> bool:
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
        if self._waiting_timeout < WAITING_TIMEOUT or not (is_new or (self.was_called and self._until_next_look() > 0)):
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
        worker.events.claim_started()
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
            self._worker.events.jobs_claimed(claims, duration)
        else:
            self._worker.events.nothing_claimed(duration)

    def _delay_after(self, claimed: Claimed) -> float:
        if claimed.has_more:
            self._look_at = -math.inf
            # A slot that takes a waiting job wakes the fetcher.
            return self._longest_wait() if claimed.waits_for_slot and not claimed.claims else 0.0
        # No job is left that a free slot could run: a slot that becomes free need not wake the fetcher.
        # A notification, a released queue or the end of the delay leads to the next claim.
        self._pool.wants_jobs = True
        until_next = math.inf if claimed.seconds_until_next is None else claimed.seconds_until_next
        self._look_at = time.monotonic() + min(self._poll_interval, until_next)
        return max(min(self._longest_wait(), self._until_next_look()), 0.0)

    def _until_next_look(self) -> float:
        """Return the seconds until the database may have a job, if nothing wakes the fetcher before."""
        return min(self._look_at, self._expected_at) - time.monotonic()

    def _longest_wait(self) -> float:
        """Return the longest time to the next step.

        Jobs that wait behind a long job must go to another slot, or be returned, in time, however rare the polls are.
        """
        if self._pool.could_do_more:
            return min(SECOND_LOOK, self._poll_interval)
        return min(WAITING_TIMEOUT, self._poll_interval) if self._pool.has_waiting else self._poll_interval

    def _return_waiting(self) -> None:
        timeout, self._waiting_timeout = self._waiting_timeout, WAITING_TIMEOUT
        with self._pool.removal_lock:
            waiting = self._pool.remove_waiting(waited_longer_than=timeout)
            if waiting:
                self._prefetch.slow_down()
                self._worker.return_jobs(waiting)
