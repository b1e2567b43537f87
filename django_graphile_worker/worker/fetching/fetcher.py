"""Claims jobs: as many as will be run in the next moments, as soon as there are any."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.sql.claims import Claim, Claimed
from django_graphile_worker.sql.fast_claim import NOTHING, Glance
from django_graphile_worker.worker.fetching.prefetch import Prefetch
from django_graphile_worker.worker.pool import SlotPool
from django_graphile_worker.worker.service import Service, Trouble
from django_graphile_worker.worker.work_units import WorkUnit, stretches

if TYPE_CHECKING:
    from typing import Protocol

    class ClaimJobs(Protocol):
        def __call__(
            self, *, max_jobs: int, max_queues: int, stretch: int, free_slots: int, max_bytes: int
        ) -> Claimed: ...

    class Ear(Protocol):
        """Where to wait for news of jobs."""

        def wait(self, seconds: float, *, unless: Callable[[], bool]) -> bool: ...

        def interrupt(self) -> None: ...

        def close(self) -> None: ...


# If a few slots were called and one of the jobs takes long after all, the others are called so soon.
SECOND_LOOK = 0.002
# Claimed jobs that have not begun by then are given back.
PATIENCE = 0.5


class Fetcher(Service):
    """The only poll loop of a worker."""

    name = "fetcher"

    def __init__(
        self,
        *,
        slots: SlotPool,
        claim: ClaimJobs,
        glance: Callable[[int], Glance] = lambda max_jobs: NOTHING,
        give_back: Callable[[Sequence[WorkUnit]], None],
        may_claim: Callable[[], bool],
        on_claimed: Callable[[list[Claim], float], None],
        poll_interval: float,
        local_queue_size: int,
        ear: Ear | None = None,
        on_close: Callable[[], None] = lambda: None,
        on_trouble: Trouble | None = None,
    ) -> None:
        super().__init__(on_trouble=on_trouble)
        self._slots = slots
        self._claim = claim
        self._glance = glance
        self._give_back = give_back
        self._may_claim = may_claim
        self._on_claimed = on_claimed
        self._poll_interval = poll_interval
        self._local_queue_size = local_queue_size
        self._ear = ear
        self._on_close = on_close
        self._pace = Prefetch(slots)
        self._expected_at = math.inf
        self._look_at = -math.inf
        self._patience = PATIENCE
        self._delay: float | None = None
        self._is_new = True
        self._is_over = threading.Event()
        self._is_over.set()
        self.last_claim_was_empty = True

    def step(self) -> float:
        """Fill the slots; return the seconds until there may be more to claim."""
        if self._has_all_at_a_glance():
            # The next step finds out how long to wait. This thread may have a job to run.
            return 0.0
        self._return_the_waiting()
        if self._slots.could_do_more:
            # Shorter jobs were expected than there are.
            self._slots.call(self._slots.concurrency)
        self.last_claim_was_empty = True
        if not self.was_called and self._until_next_look() > 0:
            # Only the slots needed a look.
            return min(self._longest_wait(), self._until_next_look())
        room = self._room()
        if room < 1:
            return self._longest_wait()
        self._look_at = -math.inf
        if not self._may_claim():
            # A lease that is back, say, tells nobody: asking costs the database nothing.
            return min(PATIENCE, self._poll_interval)
        self._expected_at = math.inf
        started = time.perf_counter()
        claimed = self._claim(
            max_jobs=room,
            # As many queues as jobs: a queued job waits no longer than one without a queue.
            max_queues=room,
            stretch=self._pace.stretch(self._local_queue_size),
            free_slots=self._slots.free,
            max_bytes=self._pace.bytes_left(),
        )
        self.last_claim_was_empty = not claimed.claims and not claimed.has_more
        self._hand_over(claimed.claims, time.perf_counter() - started)
        return self._delay_after(claimed)

    def start(self) -> None:
        """Not on a thread of its own: the slots take turns, so that the one who fetched a job can run it."""
        if self._is_over.is_set() and not self.is_stopping:
            self._is_over.clear()
            self._slots.assign(self._fetch)

    def join(self, timeout: float | None = None) -> bool:
        return self._is_over.wait(timeout)

    def _fetch(self) -> bool:
        """Until there is a job to run for the very thread that fetches (True), or until the end."""
        is_needed_elsewhere = False
        try:
            while not is_needed_elsewhere and not self._stopping.is_set():
                if self._delay is not None:
                    self._was_told = self.rest(self._delay)
                self._delay = self.round()
                is_needed_elsewhere = self._slots.has_kept
            return is_needed_elsewhere
        finally:
            if not is_needed_elsewhere:
                self.close()
                self._is_over.set()

    def expect(self, seconds: float) -> None:
        """A job falls due in so many seconds: be there in time."""
        self._expected_at = min(self._expected_at, time.monotonic() + seconds)
        self.wake()

    def give_all_back(self) -> None:
        """Whatever has not begun shall go back, now."""
        self._patience = 0.0
        self.hurry()

    def wake(self) -> None:
        super().wake()
        if self._ear is not None:
            self._ear.interrupt()

    def stop(self) -> None:
        super().stop()
        self.wake()

    def pause(self, delay: float) -> bool:
        """Wait where the news come in."""
        if self._ear is None:
            return super().pause(delay)
        return self._ear.wait(delay, unless=self.was_woken)

    def close(self) -> None:
        if self._ear is not None:
            self._ear.close()
        self._on_close()

    def _has_all_at_a_glance(self) -> bool:
        """An idle worker that was called: mostly there is one job, it starts now, and nothing else is to be done."""
        is_new, self._is_new = self._is_new, False
        if self._patience < PATIENCE or not (is_new or (self.was_called and self._until_next_look() > 0)):
            return False
        vacant = self._slots.vacant
        if vacant < 1 or not self._may_claim():
            return False
        started = time.perf_counter()
        claims, seconds_until_next = self._glance(vacant)
        if not claims:
            return False
        duration = time.perf_counter() - started
        self.last_claim_was_empty = False
        self._on_claimed(claims, duration)
        self._slots.is_hungry = True
        now = time.monotonic()
        if seconds_until_next is not None:
            self._expected_at = min(self._expected_at, now + seconds_until_next)
        for claim in claims[1:]:
            self._slots.submit([WorkUnit([claim], None, now)], callers=1)
        first = WorkUnit([claims[0]], None, now)
        if not self._slots.keep(first):
            self._slots.submit([first], callers=1)
        return True

    def _room(self) -> int:
        """Free slots and, for short jobs, a little more."""
        slots = self._slots
        ahead = self._pace.ahead(self._local_queue_size)
        slots.low_water = ahead * 3 // 4
        slots.is_hungry = False
        if slots.backlog > slots.low_water:
            # A sip is not worth the walk while the glass is nearly full.
            return 0
        return slots.free + max(min(ahead - slots.backlog, self._pace.fitting()), 0)

    def _hand_over(self, claims: list[Claim], duration: float) -> None:
        if claims:
            self._pace.weigh(claims)
            self._slots.submit(list(stretches(claims)), callers=self._pace.callers())
            self._on_claimed(claims, duration)

    def _delay_after(self, claimed: Claimed) -> float:
        if claimed.has_more:
            self._look_at = -math.inf
            # The next payload is too large beside those that wait: a slot that takes one of them calls.
            return self._longest_wait() if claimed.is_heavy and not claimed.claims else 0.0
        # Nothing is left that a free slot could run: no need to call when one is
        # free. A notification, a queue let go, or the clock will tell of more.
        self._slots.is_hungry = True
        until_next = math.inf if claimed.seconds_until_next is None else claimed.seconds_until_next
        self._look_at = time.monotonic() + min(self._poll_interval, until_next)
        return max(min(self._longest_wait(), self._until_next_look()), 0.0)

    def _until_next_look(self) -> float:
        """Seconds until the database may have something, if nobody calls before."""
        return min(self._look_at, self._expected_at) - time.monotonic()

    def _longest_wait(self) -> float:
        """What sits behind a long job is to go to another slot, or back, in time, however rare the polls."""
        if self._slots.could_do_more:
            return min(SECOND_LOOK, self._poll_interval)
        return min(PATIENCE, self._poll_interval) if self._slots.has_waiting else self._poll_interval

    def _return_the_waiting(self) -> None:
        patience, self._patience = self._patience, PATIENCE
        with self._slots.taking_back:
            stuck = self._slots.take_back(waited_longer_than=patience)
            if stuck:
                self._pace.slow_down()
                self._give_back(stuck)
