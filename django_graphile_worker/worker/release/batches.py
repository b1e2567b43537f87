"""Ends the claims of the results in a hand, and tells what became of each."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import psycopg

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import Failure, HeldQueue
from django_graphile_worker.worker.outcomes import Failed, Interrupted, Outcome, Succeeded
from django_graphile_worker.worker.release.offering import Offering
from django_graphile_worker.worker.release.pending import PendingReleases, give_queues_to_their_jobs

if TYPE_CHECKING:
    from typing import Protocol

    class Ledger(Protocol):
        """The statements that end a claim, on the releaser's own connection."""

        def complete(self, claims: Sequence[Claim]) -> set[int]: ...
        def fail(self, failures: Sequence[Failure]) -> dict[int, float | None]: ...
        def give_back(self, claims: Sequence[Claim]) -> set[int]: ...
        def give_back_remains(self, ended: Sequence[tuple[Claim, str]]) -> set[int]: ...
        def still_claimed(self, claims: Sequence[Claim]) -> set[int]: ...
        def release_queues(self, queues: Sequence[HeldQueue]) -> set[int]: ...


UNSTORABLE = "The error of this job could not be stored: {error}"

AnyOutcome = TypeVar("AnyOutcome", Succeeded, Failed, Interrupted)


class ReleaseBatcher:
    """A result leaves its hand when the database has taken it, or says that the claim is lost."""

    def __init__(
        self,
        ledger: Ledger,
        offering: Offering,
        *,
        on_released: Callable[[Sequence[Outcome]], None],
        on_settled: Callable[[Sequence[Outcome]], None],
        on_lost: Callable[[Outcome], None],
        on_retry: Callable[[float], None],
        on_returned: Callable[[], None],
        on_queues_free: Callable[[set[int]], None],
    ) -> None:
        self._ledger = ledger
        self._offering = offering
        self._on_released = on_released
        # All that leave the hand, told or not.
        self._on_settled = on_settled
        self._on_lost = on_lost
        self._on_retry = on_retry
        # Called when jobs are back, for whoever may claim them again.
        self._on_returned = on_returned
        self._on_queues_free = on_queues_free

    def settle(self, hand: PendingReleases) -> None:
        """End the claims of all outcomes in a hand; those that stay are to be tried again."""
        self._settle(hand, hand.succeeded, self._complete)
        self._settle(hand, hand.failed, self._fail)
        self._return_interrupted(hand)

    def _complete(self, outcomes: Sequence[Outcome]) -> Container[int]:
        return self._ledger.complete([outcome.claim for outcome in outcomes])

    def _give_back(self, outcomes: Sequence[Interrupted]) -> Container[int]:
        remains = [(each.claim, each.payload_text) for each in outcomes if each.payload_text is not None]
        if not remains:
            return self._ledger.give_back([outcome.claim for outcome in outcomes])
        return self._give_back_remains(remains) | self._ledger.give_back(
            [outcome.claim for outcome in outcomes if outcome.payload_text is None]
        )

    def _give_back_remains(self, remains: Sequence[tuple[Claim, str]]) -> set[int]:
        try:
            return self._ledger.give_back_remains(remains)
        except psycopg.DataError:
            if len(remains) > 1:
                raise
            # The text is the trouble: all of it again is better than none.
            return self._ledger.give_back([claim for claim, _ in remains])

    def _return_interrupted(self, hand: PendingReleases) -> None:
        if hand.interrupted:
            self._settle(hand, hand.interrupted, self._give_back)
            self._on_returned()

    def _fail(self, outcomes: Sequence[Failed]) -> Container[int]:
        try:
            stored = self._ledger.fail([_failure(outcome) for outcome in outcomes])
        except psycopg.DataError as error:
            if len(outcomes) > 1:
                raise
            # The text is the trouble: better a job without its error than none.
            culprit = replace(_failure(outcomes[0]), error=UNSTORABLE.format(error=error), payload_text=None)
            stored = self._ledger.fail([culprit])
        for delay in stored.values():
            if delay is not None:
                self._on_retry(delay)
        return stored

    def _settle(
        self, hand: PendingReleases, outcomes: list[AnyOutcome], act: Callable[[Sequence[AnyOutcome]], Container[int]]
    ) -> None:
        """Release them, tell what happened; what must be tried again stays in the list."""
        busy: list[AnyOutcome] = []
        try:
            while outcomes:
                some = outcomes[: self._offering.portion]
                done = self._offering.offer(hand, outcomes, some, act)
                if done is not None:
                    busy += self._conclude(hand, some, done)
                    del outcomes[: len(some)]
        finally:
            outcomes += busy

    def _conclude(self, hand: PendingReleases, outcomes: list[AnyOutcome], done: Container[int]) -> list[AnyOutcome]:
        """Tell what became of them; the claims that still stand."""
        missing = [outcome for outcome in outcomes if outcome.claim.id not in done]
        if not missing:
            self._on_settled(outcomes)
            self._on_released(outcomes)
            return []
        still = self._ledger.still_claimed([outcome.claim for outcome in missing])
        if not hand.is_in_doubt:
            for outcome in missing:
                if outcome.claim.id not in still and _has_begun(outcome):
                    self._on_lost(outcome)
        self._on_settled([outcome for outcome in outcomes if outcome.claim.id not in still])
        self._on_released([outcome for outcome in outcomes if outcome.claim.id in done])
        return [outcome for outcome in missing if outcome.claim.id in still]

    def release_queues(self, hand: PendingReleases, hands: Iterable[PendingReleases]) -> None:
        """Let go of the queues in a hand, but those that jobs in any of the hands still need."""
        if not hand.queues:
            return
        free = give_queues_to_their_jobs(hand, hands)
        waiting = len(hand.queues) - free
        while len(hand.queues) > waiting:
            # In the hand until they are let go: who drains the queue must see that something is left to do.
            some = hand.queues[: min(self._offering.portion, len(hand.queues) - waiting)]
            wanted = self._offering.offer(hand, hand.queues, some, self._ledger.release_queues)
            if wanted is not None:
                del hand.queues[: len(some)]
            if wanted:
                self._on_queues_free(wanted)


def _has_begun(outcome: Outcome) -> bool:
    """A claim that is lost before its job began has no result that would be lost with it."""
    return not isinstance(outcome, Interrupted) or outcome.has_begun


def _failure(outcome: Failed) -> Failure:
    return Failure(
        claim=outcome.claim,
        error=outcome.error,
        delay=outcome.delay,
        permanent=outcome.permanent,
        payload_text=outcome.payload_text,
    )
