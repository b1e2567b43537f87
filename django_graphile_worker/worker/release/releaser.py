"""Lets go of jobs: done, failed or given back. The one part that may not forget.

Whatever finished while the last statement ran goes into the next one: no timer,
no added wait. A result stays in hand until the database has taken it or says that
the claim is lost; everything else is tried again: fewer at once where the
database will not take so many, and one that it will not take at all by itself.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import psycopg

from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import CompletedAtomically, Interrupted, Outcome, Succeeded
from django_graphile_worker.worker.release.batches import ReleaseBatcher
from django_graphile_worker.worker.release.offering import BATCH, CONNECTION_TROUBLE, Offering
from django_graphile_worker.worker.release.pending import PendingReleases
from django_graphile_worker.worker.release.refused import RejectedReleases
from django_graphile_worker.worker.service import Service, Trouble

if TYPE_CHECKING:
    from django_graphile_worker.worker.release.batches import Ledger

# A row that a transaction of the site is just changing is looked at again soon.
BUSY_ROW_DELAY = 0.05


class Releaser(Service):
    """Outcomes in, statements out."""

    name = "releaser"

    def __init__(
        self,
        *,
        ledger: Ledger,
        on_released: Callable[[Sequence[Outcome]], None],
        on_settled: Callable[[Sequence[Outcome]], None] = lambda outcomes: None,
        on_lost: Callable[[Outcome], None],
        on_retry: Callable[[float], None],
        on_queues_free: Callable[[set[int]], None],
        on_returned: Callable[[], None] = lambda: None,
        on_close: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        on_trouble: Trouble | None = None,
    ) -> None:
        super().__init__(on_trouble=on_trouble)
        self._on_released = on_released
        self._on_settled = on_settled
        self._on_close = on_close
        self._inbox: deque[Outcome | HeldQueue] = deque()
        self._hand = PendingReleases()
        self._refused = RejectedReleases(clock)
        self._settlement = ReleaseBatcher(
            ledger,
            Offering(self._refused, tell=self._tell, clock=clock),
            on_released=on_released,
            on_settled=on_settled,
            on_lost=on_lost,
            on_retry=on_retry,
            on_returned=on_returned,
            on_queues_free=on_queues_free,
        )
        self._is_empty = threading.Event()
        self._is_empty.set()
        self._is_resting = True

    def put(self, outcome: Outcome | HeldQueue) -> None:
        """Take an outcome, or a queue whose stretch is over."""
        self._inbox.append(outcome)
        if self._is_resting:
            self._is_resting = False
            self._is_empty.clear()
            self.wake()

    def put_back(self, outcomes: Sequence[Interrupted], queues: Sequence[HeldQueue]) -> None:
        """Take jobs that never began, and the queues that go with them."""
        for outcome in outcomes:
            self.put(outcome)
        for queue in queues:
            self.put(queue)

    def step(self) -> float:
        """Release everything that has come in."""
        self._is_resting = False
        self._collect()
        # Those that were refused come last, and only while nothing else has come in: each may take long.
        for hand in (self._hand, *self._refused.due()):
            if hand is not self._hand and self._inbox:
                break
            if hand:
                self._is_empty.clear()
                self._release(hand)
        self._refused.forget_taken()
        if self._inbox:
            return 0.0
        return BUSY_ROW_DELAY if self._hand else self._rest()

    def hurry(self) -> None:
        """The worker waits for what is in hand, and for nothing else: what was refused is offered again soon."""
        self._refused.hurry()
        super().hurry()

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait until nothing is in hand; True when that is so."""
        return self._is_empty.wait(timeout) and self.in_hand == 0

    @property
    def in_hand(self) -> int:
        return len(self._inbox) + len(self._hand) + len(self._refused)

    @property
    def refused_for_good(self) -> list[int]:
        """The jobs whose results the database keeps refusing, once nothing else is in hand."""
        if self._inbox or self._hand or not self._refused.is_hopeless:
            return []
        return self._refused.job_ids()

    def close(self) -> None:
        self._on_close()

    def _rest(self) -> float:
        # First the flag, then the look: whoever puts in between sees the flag.
        self._is_resting = True
        if self._inbox:
            return 0.0
        if self._refused:
            return self._refused.until_next()
        self._is_empty.set()
        return math.inf

    def _collect(self) -> None:
        inbox, hand = self._inbox, self._hand
        for _ in range(min(len(inbox), BATCH)):
            item = inbox.popleft()
            if type(item) is Succeeded:
                hand.succeeded.append(item)
            elif isinstance(item, CompletedAtomically):
                self._on_settled([item])
                self._on_released([item])
            else:
                hand.put(item)

    def _release(self, hand: PendingReleases) -> None:
        try:
            self._settlement.settle(hand)
            # Only now, as settling may have set aside the job that a queue has to wait for.
            self._settlement.release_queues(hand, (self._hand, *self._refused))
        except CONNECTION_TROUBLE:
            hand.is_in_doubt = True
            raise
        hand.is_in_doubt = False

    def _tell(self, error: psycopg.Error, delay: float) -> None:
        if self._on_trouble is not None:
            self._on_trouble(self.name, error, delay)
