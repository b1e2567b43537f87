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
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Protocol, TypeVar

import psycopg
from psycopg import errors

from django_graphile_worker.sql.claims import Claim, Failure
from django_graphile_worker.worker.database import WRONG_SERVER
from django_graphile_worker.worker.hand import Hand, give_queues_to_their_jobs
from django_graphile_worker.worker.outcome import CompletedAtomically, Failed, Interrupted, Outcome, Succeeded
from django_graphile_worker.worker.service import Service, Trouble

# How many results one statement takes, at most.
BATCH = 2000
# After a refusal so many times fewer: four steps down to one, and each may cost a deadline.
SHRINKAGE = 8
# A row that a transaction of the site is just changing is looked at again soon.
BUSY_ROW_DELAY = 0.05
# One that the database refuses to take (a trigger, say) is offered again now and then,
# and those that it takes long to refuse may have a tenth of the time, all together.
REFUSED_DELAY = 5.0
SHARE_OF_THE_REFUSED = 0.1
# Nothing is known of what was under way when the connection went; a server that only
# reads will take none of it, however it is offered.
CONNECTION_TROUBLE = (psycopg.OperationalError, psycopg.InterfaceError, *WRONG_SERVER)
# An answer, and a plain one: nothing was done. Fewer may do.
TOO_MUCH = (errors.QueryCanceled, errors.OutOfMemory, errors.ProgramLimitExceeded)
UNSTORABLE = "The error of this job could not be stored: {error}"


AnyOutcome = TypeVar("AnyOutcome", Succeeded, Failed, Interrupted)
AnyItem = TypeVar("AnyItem", bound=Outcome | int)
Answer = TypeVar("Answer")


class Ledger(Protocol):
    """The statements that end a claim, on the releaser's own connection."""

    def complete(self, claims: Sequence[Claim]) -> set[int]: ...
    def fail(self, failures: Sequence[Failure]) -> dict[int, float | None]: ...
    def give_back(self, claims: Sequence[Claim]) -> set[int]: ...
    def still_claimed(self, claims: Sequence[Claim]) -> set[int]: ...
    def release_queues(self, queue_ids: Sequence[int], *, unless_in_use: bool) -> set[int]: ...


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
        self._ledger = ledger
        self._clock = clock
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
        self._refused: list[Hand] = []
        self._portion = BATCH
        self._is_hurried = False
        self._is_empty = threading.Event()
        self._is_empty.set()
        self._is_resting = True
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
        # Those that were refused come last: nobody waits for them.
        for hand in (self._hand, *self._due()):
            if hand:
                self._is_empty.clear()
                self._release(hand)
        self._refused = [hand for hand in self._refused if hand]
        if self._inbox:
            return 0.0
        return BUSY_ROW_DELAY if self._hand else self._rest()

    def hurry(self) -> None:
        """The worker waits for what is in hand, and for nothing else: what was refused is offered again soon."""
        self._is_hurried = True
        for hand in list(self._refused):
            hand.offer_at = min(hand.offer_at, self._clock() + REFUSED_DELAY)
        self.wake()

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait until nothing is in hand; True when that is so."""
        return self._is_empty.wait(timeout) and self.in_hand == 0

    @property
    def in_hand(self) -> int:
        return len(self._inbox) + len(self._hand) + sum(map(len, self._refused))

    def close(self) -> None:
        self._on_close()

    def _due(self) -> list[Hand]:
        now = self._clock()
        return [hand for hand in self._refused if hand.offer_at <= now]

    def _rest(self) -> float:
        # First the flag, then the look: whoever puts in between sees the flag.
        self._is_resting = True
        if self._inbox:
            return 0.0
        if self._refused:
            return max(min(hand.offer_at for hand in self._refused) - self._clock(), 0.0)
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

    def _release(self, hand: Hand) -> None:
        try:
            self._settle(hand, hand.succeeded, self._complete)
            self._settle(hand, hand.failed, self._fail)
            self._return_interrupted(hand)
            self._release_queues(hand)
        except CONNECTION_TROUBLE:
            hand.is_in_doubt = True
            if hand is not self._hand:
                # Claims have gone on meanwhile: giving one back again could take a new
                # claim for the old. It is swept when this worker is gone.
                hand.interrupted.clear()
            raise
        hand.is_in_doubt = False

    def _complete(self, outcomes: Sequence[Outcome]) -> Container[int]:
        return self._ledger.complete([outcome.claim for outcome in outcomes])

    def _give_back(self, outcomes: Sequence[Outcome]) -> Container[int]:
        return self._ledger.give_back([outcome.claim for outcome in outcomes])

    def _return_interrupted(self, hand: Hand) -> None:
        before = list(hand.interrupted)
        if not before:
            return
        self._settle(hand, hand.interrupted, self._give_back)
        kept = {outcome.claim.id for outcome in hand.interrupted}
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
        self, hand: Hand, outcomes: list[AnyOutcome], act: Callable[[Sequence[AnyOutcome]], Container[int]]
    ) -> None:
        """Release them, tell what happened; what must be tried again stays in the list."""
        busy: list[AnyOutcome] = []
        try:
            while outcomes:
                some = outcomes[: self._portion]
                done = self._offer(hand, outcomes, some, act)
                if done is not None:
                    busy += self._conclude(hand, some, done)
                    del outcomes[: len(some)]
        finally:
            outcomes += busy

    def _conclude(self, hand: Hand, outcomes: list[AnyOutcome], done: Container[int]) -> list[AnyOutcome]:
        """Tell what became of them; the claims that still stand."""
        missing = [outcome for outcome in outcomes if outcome.claim.id not in done]
        if not missing:
            self._on_settled(outcomes)
            self._on_released(outcomes)
            return []
        still = self._ledger.still_claimed([outcome.claim for outcome in missing])
        lost = [outcome for outcome in missing if outcome.claim.id not in still]
        if not hand.is_in_doubt:
            for outcome in lost:
                self._on_lost(outcome)
        self._on_settled([outcome for outcome in outcomes if outcome.claim.id not in still])
        self._on_released([outcome for outcome in outcomes if outcome.claim.id in done])
        return [outcome for outcome in missing if outcome.claim.id in still]

    def _offer(
        self, hand: Hand, items: list[AnyItem], some: list[AnyItem], act: Callable[[list[AnyItem]], Answer]
    ) -> Answer | None:
        """All at once; None if the database refuses: fewer then, down to one, so that one keeps no other."""
        began = self._clock()
        try:
            answer = act(some)
        except psycopg.Error as error:
            if len(some) > 1:
                self._portion = max(len(some) // SHRINKAGE, 1)
            if isinstance(error, CONNECTION_TROUBLE) and not isinstance(error, TOO_MUCH):
                # Perhaps one of these breaks the connection: the others have their turn first.
                items[:] = items[len(some) :] + some
                raise
            if len(some) == 1:
                self._set_aside(hand, items.pop(0), error, self._clock() - began)
            elif isinstance(error, TOO_MUCH):
                self._tell(error, 0.0)
            return None
        self._portion = min(self._portion * 2, BATCH)
        return answer

    def _set_aside(self, hand: Hand, item: Outcome | int, error: psycopg.Error, spent: float) -> None:
        delay = max(REFUSED_DELAY, spent * (len(self._refused) + 1) / SHARE_OF_THE_REFUSED)
        if self._is_hurried:
            delay = REFUSED_DELAY
        refused = Hand(is_in_doubt=hand.is_in_doubt, offer_at=self._clock() + delay)
        refused.put(item)
        self._refused.append(refused)
        self._tell(error, delay)

    def _tell(self, error: psycopg.Error, delay: float) -> None:
        if self._on_trouble is not None:
            self._on_trouble(self.name, error, delay)

    def _release_queues(self, hand: Hand) -> None:
        if not hand.queue_ids:
            return
        free = give_queues_to_their_jobs(hand, (self._hand, *self._refused))
        # In doubt: it may be free since the last try, and ours again with other jobs.
        release = partial(self._ledger.release_queues, unless_in_use=hand.is_in_doubt)
        waiting = len(hand.queue_ids) - free
        while len(hand.queue_ids) > waiting:
            # In the hand until they are let go: who drains the queue must see that something is left to do.
            some = hand.queue_ids[: min(self._portion, len(hand.queue_ids) - waiting)]
            wanted = self._offer(hand, hand.queue_ids, some, release)
            if wanted is not None:
                del hand.queue_ids[: len(some)]
            if wanted:
                self._on_queues_free(wanted)


def _failure(outcome: Failed) -> Failure:
    return Failure(outcome.claim, outcome.error, outcome.delay, outcome.permanent, outcome.payload_text)
