"""Lets go of jobs: done, failed or given back. The one part that may not forget.

Whatever finished while the last statement ran goes into the next one: no timer,
no added wait. A result stays in hand until the database has taken it or says that
the claim is lost; everything else is tried again.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import psycopg

from django_graphile_worker.sql.claims import Claim, Failure
from django_graphile_worker.worker.outcome import CompletedAtomically, Failed, Interrupted, Outcome, Succeeded
from django_graphile_worker.worker.service import Service, Trouble

# How many results one statement takes.
BATCH = 2000
# A row that a transaction of the site is just changing is looked at again soon.
BUSY_ROW_DELAY = 0.05
# One that the database refuses to take (a trigger, say) is offered again now and then.
REFUSED_DELAY = 5.0
# Nothing is known of what was under way when the connection went.
CONNECTION_TROUBLE = (psycopg.OperationalError, psycopg.InterfaceError)
UNSTORABLE = "The error of this job could not be stored: {error}"


AnyOutcome = TypeVar("AnyOutcome", Succeeded, Failed, Interrupted)


class Ledger(Protocol):
    """The statements that end a claim, on the releaser's own connection."""

    def complete(self, claims: Sequence[Claim]) -> set[int]: ...
    def fail(self, failures: Sequence[Failure]) -> dict[int, float | None]: ...
    def give_back(self, claims: Sequence[Claim]) -> set[int]: ...
    def still_claimed(self, claims: Sequence[Claim]) -> set[int]: ...
    def release_queues(self, queue_ids: Sequence[int], *, unless_in_use: bool) -> set[int]: ...


@dataclass
class Hand:
    """What is to be released next."""

    succeeded: list[Succeeded] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    interrupted: list[Interrupted] = field(default_factory=list)
    queue_ids: list[int] = field(default_factory=list)
    # The connection broke under an earlier try: rows that are gone now may well
    # have gone then.
    is_in_doubt: bool = False

    def __bool__(self) -> bool:
        return bool(self.succeeded or self.failed or self.interrupted or self.queue_ids)


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
        on_trouble: Trouble | None = None,
    ) -> None:
        super().__init__(on_trouble=on_trouble)
        self._ledger = ledger
        self._on_released = on_released
        # All that leave the hand, told or not.
        self._on_settled = on_settled
        self._on_lost = on_lost
        self._on_retry = on_retry
        self._on_queues_free = on_queues_free
        self._on_returned = on_returned
        self._on_close = on_close
        self._inbox: deque[Outcome | int] = deque()
        self._hand = Hand()
        self._is_empty = threading.Event()
        self._is_empty.set()
        self._is_resting = True
        self._refusals = 0
        self._being_returned: set[int] = set()

    def put(self, outcome: Outcome | int) -> None:
        """Take an outcome, or the id of a queue whose stretch is over."""
        self._inbox.append(outcome)
        if self._is_resting:
            self._is_resting = False
            self._is_empty.clear()
            self.wake()

    def put_back(self, outcomes: Sequence[Interrupted], queue_ids: Sequence[int]) -> None:
        """Take jobs that never began, and the queues that go with them."""
        self._being_returned.update(outcome.claim.id for outcome in outcomes)
        for outcome in outcomes:
            self.put(outcome)
        for queue_id in queue_ids:
            self.put(queue_id)

    @property
    def is_returning(self) -> bool:
        """Are jobs on their way back?

        A job that is given back has its attempt again. Were it claimed by the same
        worker before the answer is here, and the answer lost, then the second try
        to give it back would take the new claim for the old one.
        """
        return bool(self._being_returned)

    def step(self) -> float:
        """Release everything that has come in."""
        self._is_resting = False
        self._collect()
        self._refusals = 0
        if self._hand:
            self._is_empty.clear()
            self._release()
        if self._inbox:
            return 0.0
        if self._hand:
            return REFUSED_DELAY if self._refusals else BUSY_ROW_DELAY
        self._rest()
        return 0.0 if self._inbox else math.inf

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait until nothing is in hand; True when that is so."""
        return self._is_empty.wait(timeout) and self.in_hand == 0

    @property
    def in_hand(self) -> int:
        hand = self._hand
        jobs = len(hand.succeeded) + len(hand.failed) + len(hand.interrupted)
        return len(self._inbox) + jobs + len(hand.queue_ids)

    def close(self) -> None:
        self._on_close()

    def _rest(self) -> None:
        # First the flag, then the look: whoever puts in between sees the flag.
        self._is_resting = True
        if not self._inbox:
            self._is_empty.set()

    def _collect(self) -> None:
        inbox, hand = self._inbox, self._hand
        for _ in range(min(len(inbox), BATCH)):
            item = inbox.popleft()
            if type(item) is Succeeded:
                hand.succeeded.append(item)
            elif type(item) is Failed:
                hand.failed.append(item)
            elif type(item) is Interrupted:
                hand.interrupted.append(item)
            elif isinstance(item, int):
                hand.queue_ids.append(item)
            elif isinstance(item, CompletedAtomically):
                self._on_settled([item])
                self._on_released([item])

    def _release(self) -> None:
        hand = self._hand
        try:
            hand.succeeded = self._settle(hand.succeeded, self._complete)
            hand.failed = self._settle(hand.failed, self._fail)
            self._return_interrupted()
            self._release_queues()
        except CONNECTION_TROUBLE:
            hand.is_in_doubt = True
            raise
        hand.is_in_doubt = False

    def _complete(self, outcomes: Sequence[Outcome]) -> Container[int]:
        return self._ledger.complete([outcome.claim for outcome in outcomes])

    def _give_back(self, outcomes: Sequence[Outcome]) -> Container[int]:
        return self._ledger.give_back([outcome.claim for outcome in outcomes])

    def _return_interrupted(self) -> None:
        before = self._hand.interrupted
        if not before:
            return
        self._hand.interrupted = self._settle(before, self._give_back)
        kept = {outcome.claim.id for outcome in self._hand.interrupted}
        self._being_returned.difference_update(o.claim.id for o in before if o.claim.id not in kept)
        if not self._being_returned:
            self._on_returned()

    def _fail(self, outcomes: Sequence[Failed]) -> Container[int]:
        try:
            stored = self._ledger.fail([_failure(outcome) for outcome in outcomes])
        except psycopg.DataError as error:
            if len(outcomes) > 1:
                raise
            # The text is the trouble: better a job without its error than none.
            culprit = _failure(outcomes[0])._replace(error=UNSTORABLE.format(error=error), payload_text=None)
            stored = self._ledger.fail([culprit])
        for delay in stored.values():
            if delay is not None:
                self._on_retry(delay)
        return stored

    def _settle(
        self, outcomes: list[AnyOutcome], act: Callable[[Sequence[AnyOutcome]], Container[int]]
    ) -> list[AnyOutcome]:
        """Release them, tell what happened; return what must be tried again."""
        if not outcomes:
            return []
        done = self._each_if_need_be(outcomes, act)
        missing = [outcome for outcome in outcomes if outcome.claim.id not in done]
        if not missing:
            self._on_settled(outcomes)
            self._on_released(outcomes)
            return []
        still = self._ledger.still_claimed([outcome.claim for outcome in missing])
        lost = [outcome for outcome in missing if outcome.claim.id not in still]
        if not self._hand.is_in_doubt:
            for outcome in lost:
                self._on_lost(outcome)
        self._on_settled([outcome for outcome in outcomes if outcome.claim.id not in still])
        self._on_released([outcome for outcome in outcomes if outcome.claim.id in done])
        return [outcome for outcome in missing if outcome.claim.id in still]

    def _each_if_need_be(
        self, outcomes: Sequence[AnyOutcome], act: Callable[[Sequence[AnyOutcome]], Container[int]]
    ) -> Container[int]:
        """All at once; if the database refuses, each for itself, so that one keeps no other."""
        try:
            return act(outcomes)
        except CONNECTION_TROUBLE:
            raise
        except psycopg.Error as error:
            if len(outcomes) == 1:
                self._refusals += 1
                if self._on_trouble is not None:
                    self._on_trouble(self.name, error, REFUSED_DELAY)
                return ()
            return {o.claim.id for o in outcomes if o.claim.id in self._each_if_need_be([o], act)}

    def _release_queues(self) -> None:
        if not self._hand.queue_ids:
            return
        # A queue is free only when its last job is: those wait with their jobs.
        held = {outcome.claim.queue_id for outcome in self._unsettled()}
        ready = [queue_id for queue_id in self._hand.queue_ids if queue_id not in held]
        # In doubt: it may be free since the last try, and ours again with other jobs.
        unless_in_use = self._hand.is_in_doubt
        waiting = self._ledger.release_queues(ready, unless_in_use=unless_in_use) if ready else set()
        self._hand.queue_ids = [queue_id for queue_id in self._hand.queue_ids if queue_id in held]
        if waiting:
            self._on_queues_free(waiting)

    def _unsettled(self) -> Sequence[Outcome]:
        return [*self._hand.succeeded, *self._hand.failed, *self._hand.interrupted]


def _failure(outcome: Failed) -> Failure:
    return Failure(outcome.claim, outcome.error, outcome.delay, outcome.permanent, outcome.payload_text)
