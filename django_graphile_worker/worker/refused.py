"""Results that the database will not take at all: each waits by itself, so that nobody waits for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.hand import Hand
from django_graphile_worker.worker.outcome import Outcome

# One that the database refuses to take (a trigger, say) is offered again now and then,
# and those that it takes long to refuse may have a tenth of the time, all together.
REFUSED_DELAY = 5.0
# A worker that stops waits for them: it offers each so many times more, soon after each other, and then gives up.
HURRIED_DELAY = 0.5
LAST_OFFERS = 3
SHARE_OF_THE_REFUSED = 0.1


class Refused:
    """What was refused, each in a hand of its own with the time at which it is offered again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._hands: list[Hand] = []
        self._is_hurried = False
        # How often each was refused since, for good reason: time was not what the database lacked.
        self._last_refusals: Counter[tuple[str, int]] = Counter()

    def set_aside(self, item: Outcome | HeldQueue, *, is_in_doubt: bool, spent: float, is_plain: bool = False) -> float:
        """Keep it for later; in how many seconds, after so many were spent on the refusal."""
        delay = max(REFUSED_DELAY, spent * (len(self._hands) + 1) / SHARE_OF_THE_REFUSED)
        if self._is_hurried:
            delay = HURRIED_DELAY if is_plain else REFUSED_DELAY
            self._last_refusals[_name(item)] += is_plain
        hand = Hand(is_in_doubt=is_in_doubt, offer_at=self._clock() + delay)
        hand.put(item)
        self._hands.append(hand)
        return delay

    def due(self) -> list[Hand]:
        now = self._clock()
        return [hand for hand in self._hands if hand.offer_at <= now]

    def until_next(self) -> float:
        """Seconds until one is to be offered again; only when there are any."""
        return max(min(hand.offer_at for hand in self._hands) - self._clock(), 0.0)

    def forget_taken(self) -> None:
        self._hands = [hand for hand in self._hands if hand]

    def hurry(self) -> None:
        """From another thread: whoever stops waits for them, so none is put off for long any more."""
        self._is_hurried = True
        for hand in list(self._hands):
            hand.offer_at = self._clock()

    @property
    def is_hopeless(self) -> bool:
        """Has the database refused each of them again and again since somebody waits for them?"""
        hands = [hand for hand in list(self._hands) if hand]
        return bool(hands) and all(
            self._last_refusals[_name(item)] >= LAST_OFFERS
            for hand in hands
            # The queue of a job goes when the job does.
            for item in hand.outcomes() or hand.queues
        )

    def job_ids(self) -> list[int]:
        return [outcome.claim.id for hand in list(self._hands) for outcome in hand.outcomes()]

    def __iter__(self) -> Iterator[Hand]:
        return iter(self._hands)

    def __len__(self) -> int:
        return sum(map(len, self._hands))


def _name(item: Outcome | HeldQueue) -> tuple[str, int]:
    return ("queue", item.id) if isinstance(item, HeldQueue) else ("job", item.claim.id)
