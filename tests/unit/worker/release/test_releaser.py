"""When the releaser sends its statements: at once, or together with the outcomes of the next moments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import Failed, Recorded, Succeeded
from django_graphile_worker.worker.release.releaser import PAUSE, SHORT_JOB, Releaser
from tests.support.slot import make_claim

QUEUE = HeldQueue(7, "worker/1")


class Statements:
    """Accepts everything, and keeps the number of jobs of each statement."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.cancelled: dict[int, Any] = {}

    def complete(self, outcomes: list[Any]) -> set[int]:
        self.sizes.append(len(outcomes))
        return {outcome.claim.id for outcome in outcomes}

    return_jobs = complete

    def rehearse(self) -> None:
        self.sizes.append(0)

    def release_queues(self, queues: list[HeldQueue]) -> set[int]:
        self.sizes.append(len(queues))
        return set()


@pytest.fixture
def statements() -> Statements:
    return Statements()


@pytest.fixture
def releaser(statements: Statements, monkeypatch: pytest.MonkeyPatch) -> Releaser:
    monkeypatch.setattr("django_graphile_worker.worker.release.releaser.ReleaseStatements", lambda *args: statements)
    return Releaser(Mock())


def ended(job_id: int, seconds: float = 0.01) -> Succeeded:
    return Succeeded(make_claim(id=job_id), seconds)


def test_first_outcome__is_released_at_once(releaser: Releaser, statements: Statements) -> None:
    releaser.put(ended(1))
    assert releaser.was_woken()
    releaser.step()
    assert statements.sizes == [1]


def test_outcomes_of_the_next_moments__are_released_together(releaser: Releaser, statements: Statements) -> None:
    releaser.put(ended(1))
    assert releaser.step() == PAUSE
    releaser.forget_wake()
    for job_id in range(2, 6):
        releaser.put(ended(job_id))
    assert not releaser.was_woken(), "expected the outcomes to wait for the end of the pause"
    assert releaser.pending_count == 4
    releaser.step()
    assert statements.sizes == [1, 4]


def test_rest__follows_a_pause_in_which_nothing_arrived(releaser: Releaser) -> None:
    releaser.put(ended(1))
    releaser.step()
    assert releaser.step() == math.inf
    assert releaser.wait_until_empty(0)
    releaser.forget_wake()
    releaser.put(ended(2))
    assert releaser.was_woken()


@pytest.mark.parametrize(
    ("durations", "pause"),
    [
        ([5.0], PAUSE),
        ([SHORT_JOB, 0.005], PAUSE),
        ([SHORT_JOB / 2], math.inf),
        ([1.0, 0.0], math.inf),
    ],
)
def test_pause__follows_jobs_that_are_not_short(releaser: Releaser, durations: list[float], pause: float) -> None:
    for job_id, seconds in enumerate(durations):
        releaser.put(ended(job_id, seconds))
    assert releaser.step() == pause


def test_short_jobs__follow_without_a_pause(releaser: Releaser, statements: Statements) -> None:
    def complete(outcomes: list[Any]) -> set[int]:
        if outcomes[0].claim.id == 1:
            releaser.put(ended(2, 0.0))
        return {outcome.claim.id for outcome in outcomes}

    statements.complete = complete  # type: ignore[method-assign]
    releaser.put(ended(1, 0.0))
    assert releaser.step() == 0.0


@pytest.mark.parametrize(
    "arrive",
    [
        lambda releaser: releaser.release_queue(QUEUE),
        lambda releaser: releaser.put(Recorded(make_claim(id=2), 0.01, None, 0.0, Mock(), "1")),
        lambda releaser: releaser.put(Failed(make_claim(id=2), 0.01, "Error: no")),
    ],
    ids=["queue", "result", "failure"],
)
def test_what_is_awaited_and_arrives_during_a_statement__prevents_the_pause(
    releaser: Releaser, statements: Statements, arrive: Callable[[Releaser], None]
) -> None:
    def complete(outcomes: list[Any]) -> set[int]:
        arrive(releaser)
        return {outcome.claim.id for outcome in outcomes}

    statements.complete = complete  # type: ignore[method-assign]
    releaser.put(ended(1))
    assert releaser.step() == 0.0


def test_stop__knows_no_pause(releaser: Releaser) -> None:
    releaser.put(ended(1))
    releaser.step()
    releaser.hurry()
    assert releaser.was_woken()
    releaser.put(ended(2))
    assert releaser.step() == math.inf
