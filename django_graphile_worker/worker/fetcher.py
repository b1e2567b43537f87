"""Claims jobs: as many as will be run in the next moments, as soon as there are any."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from django_graphile_worker.sql.claims import Claim, Claimed
from django_graphile_worker.worker.service import Service, Trouble
from django_graphile_worker.worker.slots import Slots, Stretch

# How far ahead to claim: what the slots finish in this time. Longer jobs are
# never claimed ahead, they would only be kept from other workers.
HORIZON = 0.05
# A queue is taken for about this long at a time, then others have their turn.
STRETCH_HORIZON = 0.1
# And never more payload than this.
CHARACTERS_AHEAD = 16 * 1024 * 1024
# A job of this length is worth another thread; shorter ones only get into each other's way.
WORTH_A_SLOT = 0.0001
# If a few slots were called and one of the jobs takes long after all, the others are called so soon.
SECOND_LOOK = 0.002
# Claimed jobs that have not begun by then are given back.
PATIENCE = 0.5


class ClaimJobs(Protocol):
    def __call__(self, *, max_jobs: int, max_queues: int, stretch: int) -> Claimed: ...


class Ear(Protocol):
    """Where to wait for news of jobs."""

    def wait(self, seconds: float, *, unless: Callable[[], bool]) -> bool: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


class Fetcher(Service):
    """The only poll loop of a worker."""

    name = "fetcher"

    def __init__(
        self,
        *,
        slots: Slots,
        claim: ClaimJobs,
        give_back: Callable[[Sequence[Stretch]], None],
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
        self._give_back = give_back
        self._may_claim = may_claim
        self._on_claimed = on_claimed
        self._poll_interval = poll_interval
        self._local_queue_size = local_queue_size
        self._ear = ear
        self._on_close = on_close
        self._pace = Pace(slots)
        self._expected_at = math.inf
        self._look_at = -math.inf
        self._patience = PATIENCE
        self.last_claim_was_empty = True

    def step(self) -> float:
        """Fill the slots; return the seconds until there may be more to claim."""
        self._return_the_waiting()
        if self._slots.could_do_more:
            # Shorter jobs were expected than there are.
            self._slots.call(self._slots.concurrency)
        room = self._room()
        self.last_claim_was_empty = True
        if room < 1:
            return self._longest_wait()
        if not self.was_called and self._until_next_look() > 0:
            # Only the slots needed a look.
            return min(self._longest_wait(), self._until_next_look())
        self._look_at = -math.inf
        if not self._may_claim():
            # A lease that is back, say, tells nobody: asking costs the database nothing.
            return min(PATIENCE, self._poll_interval)
        max_queues = self._slots.free
        self._expected_at = math.inf
        started = time.perf_counter()
        claimed = self._claim(max_jobs=room, max_queues=max_queues, stretch=self._pace.stretch(self._local_queue_size))
        self.last_claim_was_empty = not claimed.claims and not claimed.was_full
        self._hand_over(claimed.claims, time.perf_counter() - started)
        return self._delay_after(claimed, max_queues)

    def expect(self, seconds: float) -> None:
        """A job falls due in so many seconds: be there in time."""
        self._expected_at = min(self._expected_at, time.monotonic() + seconds)
        self.wake()

    def give_all_back(self) -> None:
        """Whatever has not begun shall go back, soon."""
        self._patience = 0.0
        self.wake()

    def wake(self) -> None:
        super().wake()
        if self._ear is not None:
            self._ear.interrupt()

    def stop(self) -> None:
        super().stop()
        self.wake()

    def pause(self, delay: float) -> None:
        """Wait where the news come in."""
        if self._ear is None:
            super().pause(delay)
        elif self._ear.wait(delay, unless=self.was_woken):
            super().wake()

    def close(self) -> None:
        if self._ear is not None:
            self._ear.close()
        self._on_close()

    def _room(self) -> int:
        """Free slots and, for short jobs, a little more."""
        slots = self._slots
        ahead = self._pace.ahead(self._local_queue_size)
        slots.low_water = ahead * 3 // 4
        slots.is_hungry = False
        if slots.backlog > slots.low_water:
            # A sip is not worth the walk while the glass is nearly full.
            return 0
        return slots.free + max(ahead - slots.backlog, 0)

    def _hand_over(self, claims: list[Claim], duration: float) -> None:
        if claims:
            self._pace.weigh(claims)
            self._slots.submit(list(stretches(claims)), callers=self._pace.callers())
            self._on_claimed(claims, duration)

    def _delay_after(self, claimed: Claimed, max_queues: int) -> float:
        if claimed.was_full:
            self._look_at = -math.inf
            return 0.0
        queues = {claim.queue_id for claim in claimed.claims if claim.queue_id is not None}
        # Nothing is left that a free slot could run: no need to call when one is
        # free. A notification, a queue let go, or the clock will tell of more.
        self._slots.is_hungry = len(queues) < max_queues
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


class Pace:
    """How long jobs take here, lately."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._seconds: float | None = None
        self._characters = 1
        self._finished = 0
        self._busy = 0.0

    def ahead(self, limit: int) -> int:
        """How many jobs to claim beyond the free slots."""
        seconds = self._measure()
        if seconds is None or seconds > HORIZON:
            return 0
        room = min(limit, CHARACTERS_AHEAD // self._characters)
        return min(room, int(self._slots.concurrency * HORIZON / max(seconds, 1e-6)))

    def callers(self) -> int:
        """How many slots to call for new jobs: all, unless jobs are so short that a few keep up."""
        seconds = self._measure()
        return self._slots.concurrency if seconds is None else math.ceil(seconds / WORTH_A_SLOT) + 1

    def stretch(self, limit: int) -> int:
        """How many jobs of one queue to claim at once."""
        seconds = self._measure()
        if seconds is None:
            return 1
        return max(1, min(limit, int(STRETCH_HORIZON / max(seconds, 1e-6))))

    def weigh(self, claims: Sequence[Claim]) -> None:
        """Large payloads are not worth holding in memory by the thousand."""
        self._characters = max(sum(len(claim.payload_text) for claim in claims) // len(claims), 1)

    def slow_down(self) -> None:
        """Claimed jobs did not move: the recent past is no guide."""
        self._seconds = None

    def _measure(self) -> float | None:
        finished, busy = self._slots.totals()
        if finished > self._finished:
            recent = (busy - self._busy) / (finished - self._finished)
            self._seconds = recent if self._seconds is None else (self._seconds + recent) / 2
            self._finished, self._busy = finished, busy
        return self._seconds


def stretches(claims: Sequence[Claim]) -> Iterable[Stretch]:
    """One stretch per queue, in its order; every other job for itself, first things first."""
    now = time.monotonic()
    by_queue: dict[int, list[Claim]] = {}
    for claim in reversed(claims):
        if claim.queue_id is not None:
            by_queue.setdefault(claim.queue_id, []).append(claim)
    for claim in claims:
        queue_id = claim.queue_id
        if queue_id is None:
            yield Stretch([claim], None, now)
        elif queue_id in by_queue:
            yield Stretch(by_queue.pop(queue_id), queue_id, now)
