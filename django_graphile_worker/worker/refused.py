"""Results that the database will not take: each waits by itself, so that no other waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.hand import Hand
from django_graphile_worker.worker.outcome import Outcome

# A result that the database refuses is offered again after this many seconds.
REFUSED_DELAY = 5.0
# A result that is refused again although others were taken meanwhile is the trouble itself. All such results together
# may take this share of the time, but none waits longer than the longest delay: what kept it may be over.
SHARE_OF_THE_REFUSED = 0.1
LONGEST_DELAY = 30.0


class Refused:
    """What was refused, each in a hand of its own with the time at which it is offered again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._hands: list[Hand] = []
        self._is_hurried = False
        # How many statements were answered well so far.
        self._successes = 0

    def set_aside(
        self, item: Outcome | HeldQueue, *, is_in_doubt: bool, spent: float, hand: Hand | None = None
    ) -> float:
        """Keep it for later; return in how many seconds, after so many were spent on the refusal.

        ``hand`` is the one it was in, where it was refused before.
        """
        delay = self._delay(spent, hand)
        kept = Hand(is_in_doubt=is_in_doubt, offer_at=self._clock() + delay)
        kept.put(item)
        kept.successes_before = self._successes
        self._hands.append(kept)
        return delay

    def note_success(self, hand: Hand) -> None:
        """A statement was answered well. If it took what was refused before, the others may be taken too."""
        self._successes += 1
        if hand in self._hands:
            for each in self._hands:
                each.offer_at = min(each.offer_at, self._clock())
                each.successes_before = None

    def due(self) -> list[Hand]:
        now = self._clock()
        return [hand for hand in self._hands if hand.offer_at <= now]

    def until_next(self) -> float:
        """Seconds until one is to be offered again; only when there are any."""
        return max(min(hand.offer_at for hand in self._hands) - self._clock(), 0.0)

    def forget_taken(self) -> None:
        self._hands = [hand for hand in self._hands if hand]

    def hurry(self) -> None:
        """From another thread: the worker that stops waits for them, so none is put off for long any more."""
        self._is_hurried = True
        for hand in list(self._hands):
            hand.offer_at = min(hand.offer_at, self._clock() + REFUSED_DELAY)

    def _delay(self, spent: float, hand: Hand | None) -> float:
        is_the_trouble = (
            hand is not None and hand.successes_before is not None and self._successes > hand.successes_before
        )
        if self._is_hurried or not is_the_trouble:
            return REFUSED_DELAY
        return min(max(REFUSED_DELAY, spent * len(self._hands) / SHARE_OF_THE_REFUSED), LONGEST_DELAY)

    def __iter__(self) -> Iterator[Hand]:
        return iter(self._hands)

    def __len__(self) -> int:
        return sum(map(len, self._hands))
