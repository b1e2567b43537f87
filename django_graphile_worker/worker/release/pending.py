"""What a releaser has in hand: results that the database has yet to take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import Failed, Interrupted, Outcome, Succeeded


class PendingReleases:
    """What is to be released next."""

    def __init__(self, *, is_in_doubt: bool = False, offer_at: float = -math.inf) -> None:
        self.succeeded: list[Succeeded] = []
        self.failed: list[Failed] = []
        self.interrupted: list[Interrupted] = []
        self.queues: list[HeldQueue] = []
        # The connection broke under an earlier try: rows that are gone now may well
        # have gone then.
        self.is_in_doubt = is_in_doubt
        # A result that was refused is in a hand of its own, to be offered again at this time.
        self.offer_at = offer_at
        # How many statements had been answered well when it was refused; None where that says nothing.
        self.successes_before: int | None = None

    def __len__(self) -> int:
        return len(self.succeeded) + len(self.failed) + len(self.interrupted) + len(self.queues)

    def put(self, item: Outcome | HeldQueue) -> None:
        if type(item) is Succeeded:
            self.succeeded.append(item)
        elif type(item) is Failed:
            self.failed.append(item)
        elif type(item) is Interrupted:
            self.interrupted.append(item)
        elif isinstance(item, HeldQueue):
            self.queues.append(item)

    def outcomes(self) -> Sequence[Outcome]:
        return [*self.succeeded, *self.failed, *self.interrupted]


def give_queues_to_their_jobs(hand: PendingReleases, hands: Iterable[PendingReleases]) -> int:
    """A queue is free only when its last job is: until then it waits in that job's hand.

    Those that are free come first in the hand, and stay there as long as they are not let go; how many.
    """
    needed_by = {_queue_of(outcome): each for each in hands for outcome in each.outcomes()}
    for queue in hand.queues:
        if needed_by.get(queue, hand) is not hand:
            needed_by[queue].queues.append(queue)
    staying = [queue for queue in hand.queues if needed_by.get(queue, hand) is hand]
    hand.queues[:] = sorted(staying, key=lambda queue: queue in needed_by)
    return sum(queue not in needed_by for queue in staying)


def _queue_of(outcome: Outcome) -> HeldQueue | None:
    claim = outcome.claim
    return None if claim.queue_id is None else HeldQueue(claim.queue_id, claim.token)
