"""Results that the database will not take: each waits by itself, so that no other waits for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import Outcome
from django_graphile_worker.worker.release.pending import PendingReleases

# A result that the database refuses is offered again after this many seconds.
REFUSED_DELAY = 5.0
# A result that is refused again although others were taken meanwhile is the trouble itself. All such results together
# may take this share of the time, but none waits longer than the longest delay: what kept it may be over.
SHARE_OF_THE_REFUSED = 0.1
LONGEST_DELAY = 30.0
# A worker that stops waits for them: it offers each so many times more, soon after each other, and then gives up.
HURRIED_DELAY = 0.5
LAST_OFFERS = 3


class RejectedReleases:
    """What was refused, each in a hand of its own with the time at which it is offered again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._hands: list[PendingReleases] = []
        self._is_hurried = False
        # How many statements were answered well so far.
        self._successes = 0
        # How often each was refused since, for good reason: time was not what the database lacked.
        self._last_refusals: Counter[tuple[str, int]] = Counter()

    def set_aside(
        self, item: Outcome | HeldQueue, refused: PendingReleases, *, spent: float, is_plain: bool = False
    ) -> float:
        """Keep what was refused out of a hand; return in how many seconds it is offered again.

        ``spent`` are the seconds that the refusal took; it is plain when time was not what the database lacked.
        """
        delay = self._delay(refused, spent=spent, is_plain=is_plain)
        self._last_refusals[_name(item)] += self._is_hurried and is_plain
        hand = PendingReleases(is_in_doubt=refused.is_in_doubt, offer_at=self._clock() + delay)
        hand.put(item)
        hand.successes_before = self._successes
        self._hands.append(hand)
        return delay

    def note_success(self, hand: PendingReleases) -> None:
        """A statement was answered well. If it took what was refused before, the others may be taken too."""
        self._successes += 1
        if self._hands and hand in self._hands:
            for each in self._hands:
                each.offer_at = min(each.offer_at, self._clock())
                each.successes_before = None

    def due(self) -> list[PendingReleases]:
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

    def _delay(self, refused: PendingReleases, *, spent: float, is_plain: bool) -> float:
        if self._is_hurried:
            return HURRIED_DELAY if is_plain else REFUSED_DELAY
        before = refused.successes_before
        if before is None or self._successes == before:
            # Nothing was taken since it was last refused: the database is the trouble.
            return REFUSED_DELAY
        return min(max(REFUSED_DELAY, spent * len(self._hands) / SHARE_OF_THE_REFUSED), LONGEST_DELAY)

    def __iter__(self) -> Iterator[PendingReleases]:
        return iter(self._hands)

    def __len__(self) -> int:
        return sum(map(len, self._hands))


def _name(item: Outcome | HeldQueue) -> tuple[str, int]:
    return ("queue", item.id) if isinstance(item, HeldQueue) else ("job", item.claim.id)
