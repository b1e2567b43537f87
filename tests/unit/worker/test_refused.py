"""When a result that the database refused is offered again."""

from __future__ import annotations

from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.release.pending import PendingReleases
from django_graphile_worker.worker.release.refused import LONGEST_DELAY, REFUSED_DELAY, RejectedReleases


class Trial:
    """Results that are refused, each after so many seconds."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.refused = RejectedReleases(lambda: self.now)

    def refuse(self, number: int, *, spent: float, hand: PendingReleases | None = None) -> PendingReleases:
        self.delay = self.refused.set_aside(HeldQueue(number, "w/1"), hand or PendingReleases(), spent=spent)
        if hand is not None:
            hand.queues.clear()
            self.refused.forget_taken()
        return list(self.refused)[-1]

    def take(self, hand: PendingReleases | None = None) -> None:
        self.refused.note_success(hand or PendingReleases())
        if hand is not None:
            hand.queues.clear()
            self.refused.forget_taken()


def test_what_is_refused_while_nothing_is_taken__is_offered_again_in_seconds() -> None:
    """The database is the trouble: a lock on the whole table, say."""
    trial = Trial()
    hands = [trial.refuse(number, spent=30.0) for number in range(6)]
    for _ in range(5):
        hands = [trial.refuse(number, spent=30.0, hand=hand) for number, hand in enumerate(hands)]
        assert trial.delay == REFUSED_DELAY


def test_what_is_refused_although_others_are_taken__waits_longer_but_never_minutes() -> None:
    trial = Trial()
    hand = trial.refuse(1, spent=2.0)
    assert trial.delay == REFUSED_DELAY
    trial.take()
    hand = trial.refuse(1, spent=2.0, hand=hand)
    assert trial.delay == 20.0
    trial.take()
    trial.refuse(1, spent=60.0, hand=hand)
    assert trial.delay == LONGEST_DELAY


def test_what_was_refused_and_is_taken__gives_the_others_their_chance_at_once() -> None:
    trial = Trial()
    first, second = trial.refuse(1, spent=60.0), trial.refuse(2, spent=60.0)
    trial.take()
    second = trial.refuse(2, spent=60.0, hand=second)
    assert trial.refused.due() == []
    trial.take(first)
    assert trial.refused.due() == [second]
    trial.refuse(2, spent=60.0, hand=second)
    assert trial.delay == REFUSED_DELAY
