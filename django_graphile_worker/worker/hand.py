"""What a releaser has in hand: results that the database has yet to take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django_graphile_worker.worker.outcome import Failed, Interrupted, Outcome, Succeeded


@dataclass(eq=False)
class Hand:
    """What is to be released next."""

    succeeded: list[Succeeded] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    interrupted: list[Interrupted] = field(default_factory=list)
    queue_ids: list[int] = field(default_factory=list)
    # The connection broke under an earlier try: rows that are gone now may well
    # have gone then.
    is_in_doubt: bool = False
    # One that was refused is in a hand of its own, to be offered again then.
    offer_at: float = -math.inf

    def __len__(self) -> int:
        return len(self.succeeded) + len(self.failed) + len(self.interrupted) + len(self.queue_ids)

    def put(self, item: Outcome | int) -> None:
        if type(item) is Succeeded:
            self.succeeded.append(item)
        elif type(item) is Failed:
            self.failed.append(item)
        elif type(item) is Interrupted:
            self.interrupted.append(item)
        elif isinstance(item, int):
            self.queue_ids.append(item)

    def outcomes(self) -> Sequence[Outcome]:
        return [*self.succeeded, *self.failed, *self.interrupted]


def give_queues_to_their_jobs(hand: Hand, hands: Iterable[Hand]) -> list[int]:
    """A queue is free only when its last job is: until then it waits in that job's hand. The others."""
    holders = {outcome.claim.queue_id: each for each in hands for outcome in each.outcomes()}
    queue_ids, hand.queue_ids = hand.queue_ids, []
    free = []
    for queue_id in queue_ids:
        if queue_id in holders:
            holders[queue_id].queue_ids.append(queue_id)
        else:
            free.append(queue_id)
    return free
