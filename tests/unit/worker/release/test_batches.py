"""When a result that the database rejected is sent again."""

from __future__ import annotations

from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.release.batches import (
    LONGEST_DELAY,
    REJECTED_DELAY,
    PendingReleases,
    RejectedReleases,
)


class Trial:
    """Results that are rejected, each after so many seconds."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.rejected = RejectedReleases(lambda: self.now)

    def reject(self, number: int, *, spent: float, pending: PendingReleases | None = None) -> PendingReleases:
        self.delay = self.rejected.add(HeldQueue(number, "w/1"), pending or PendingReleases(), spent=spent)
        if pending is not None:
            pending.queues.clear()
            self.rejected.remove_released()
        return self.rejected.all[-1]

    def accept(self, pending: PendingReleases | None = None) -> None:
        self.rejected.note_success(pending or PendingReleases())
        if pending is not None:
            pending.queues.clear()
            self.rejected.remove_released()


def test_rejected_while_nothing_is_accepted__is_sent_again_in_seconds() -> None:
    """The problem is the database: a lock on the whole table, for example."""
    trial = Trial()
    rejected = [trial.reject(number, spent=30.0) for number in range(6)]
    for _ in range(5):
        rejected = [trial.reject(number, spent=30.0, pending=pending) for number, pending in enumerate(rejected)]
        assert trial.delay == REJECTED_DELAY


def test_rejected_although_others_are_accepted__waits_longer_but_never_minutes() -> None:
    trial = Trial()
    pending = trial.reject(1, spent=2.0)
    assert trial.delay == REJECTED_DELAY
    trial.accept()
    pending = trial.reject(1, spent=2.0, pending=pending)
    assert trial.delay == 20.0
    trial.accept()
    trial.reject(1, spent=60.0, pending=pending)
    assert trial.delay == LONGEST_DELAY


def test_accepted_after_a_rejection__sends_the_other_rejected_at_once() -> None:
    trial = Trial()
    first, second = trial.reject(1, spent=60.0), trial.reject(2, spent=60.0)
    trial.accept()
    second = trial.reject(2, spent=60.0, pending=second)
    assert trial.rejected.due() == []
    trial.accept(first)
    assert trial.rejected.due() == [second]
    trial.reject(2, spent=60.0, pending=second)
    assert trial.delay == REJECTED_DELAY
