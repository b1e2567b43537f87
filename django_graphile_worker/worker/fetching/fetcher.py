"""The fetcher: claims jobs as soon as there are any, and no more than the slots will run within moments."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.sql.claims import Claim, Claimed
from django_graphile_worker.worker.fetching.pool_loop import PoolLoop
from django_graphile_worker.worker.fetching.prefetch import Prefetch
from django_graphile_worker.worker.fetching.slot_demand import SECOND_LOOK, SlotDemand
from django_graphile_worker.worker.pool.slot_pool import SlotPool
from django_graphile_worker.worker.work_units import WorkUnit, line_up

if TYPE_CHECKING:
    from typing import Protocol

    class Claims(Protocol):
        """The claim statement."""

        def claim(self, *, max_jobs: int, max_per_queue: int, max_bytes: int, free_slots: int) -> Claimed: ...

    class StartsDueJobs(Protocol):
        """A quicker way for the few jobs of an idle worker; see ``fast_path``."""

        def start_due_jobs(self) -> float | None:
            """Start all due jobs; return the seconds until the next job is due, or None if nothing was started."""

    class WaitingPlace(Protocol):
        """Where the fetcher waits; see ``listener``."""

        def wait(self, seconds: float, *, unless: Callable[[], bool]) -> bool: ...

        def interrupt(self) -> None: ...

        def close(self) -> None: ...

    class FetchEvents(Protocol):
        """What the fetcher calls in other parts of the worker."""

        def may_claim(self) -> bool:
            """Return True if this worker may claim jobs now."""

        def return_jobs(self, units: Sequence[WorkUnit], /) -> None:
            """Return jobs that have not begun."""

        def on_claiming(self) -> None:
            """Report that jobs are about to be claimed."""

        def on_nothing_claimed(self, duration: float, /) -> None:
            """Report that there were none, and the seconds that the statement took."""

        def on_claimed(self, claims: list[Claim], duration: float, /) -> None:
            """Report jobs that were claimed, and the seconds that the statement took."""

        def on_trouble(self, name: str, error: BaseException, delay: float, /) -> None:
            """Report that a step failed; the next step follows after the delay."""

        def on_close(self) -> None:
            """Close what the fetcher used: it has ended."""


# Seconds after which claimed jobs that have not begun are returned.
WAITING_TIMEOUT = 0.5


class NoFastPath:
    """Leaves every job to the claim statement."""

    def start_due_jobs(self) -> None:
        return None


class Fetcher(PoolLoop):
    """The only poll loop of a worker."""

    name = "fetcher"

    def __init__(
        self,
        pool: SlotPool,
        *,
        claimer: Claims,
        events: FetchEvents,
        poll_interval: float,
        local_queue_size: int,
        fast_path: StartsDueJobs | None = None,
        listener: WaitingPlace | None = None,
    ) -> None:
        super().__init__(pool, on_trouble=events.on_trouble)
        self._claimer = claimer
        self._may_claim = events.may_claim
        self._return_jobs = events.return_jobs
        self._on_claiming = events.on_claiming
        self._on_nothing_claimed = events.on_nothing_claimed
        self._on_claimed = events.on_claimed
        self._on_close = events.on_close
        self._start_due_jobs = (fast_path or NoFastPath()).start_due_jobs
        self._poll_interval = poll_interval
        self._local_queue_size = local_queue_size
        self._listener = listener
        self._prefetch = Prefetch(pool)
        self._demand = SlotDemand(pool)
        self._expected_at = math.inf
        self._look_at = -math.inf
        self._waiting_timeout = WAITING_TIMEOUT
        self._is_new = True
        self.last_claim_was_empty = True

    def use(self, claimer: Claims, fast_path: StartsDueJobs) -> None:
        """Claim with these from now on: the worker has limited tasks."""
        self._claimer = claimer
        self._start_due_jobs = fast_path.start_due_jobs

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
        if not self._may_claim():
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
        self._on_close()

    def _has_started_due_jobs(self) -> bool:
        """Try the fast path if the worker is idle and was called: mostly a single job is due then."""
        is_new, self._is_new = self._is_new, False
        if self._waiting_timeout < WAITING_TIMEOUT or not (is_new or (self.was_called and self._until_next_look() > 0)):
            return False
        if not self._may_claim():
            return False
        seconds_until_next = self._start_due_jobs()
        if seconds_until_next is None:
            return False
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
        self._on_claiming()
        started = time.perf_counter()
        claimed = self._claimer.claim(
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
            self._on_claimed(claims, duration)
        else:
            self._on_nothing_claimed(duration)

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
                self._return_jobs(waiting)
