"""When the releaser sends its statements: at once, or together with the outcomes of the next moments."""

from __future__ import annotations

import math
from typing import Any, cast
from unittest.mock import Mock

import pytest

from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import Interrupted, Recorded, Succeeded
from django_graphile_worker.worker.release.releaser import LONGEST_PAUSE, SHORTEST_PAUSE, Releaser
from tests.support.slot import make_claim

QUEUE = HeldQueue(7, "worker/1")


class Statements:
    """Accepts everything, and keeps the number of jobs of each statement."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def complete(self, claims: list[Any]) -> set[int]:
        self.sizes.append(len(claims))
        return {claim.id for claim in claims}

    return_jobs = complete

    def release_queues(self, queues: list[HeldQueue]) -> set[int]:
        self.sizes.append(len(queues))
        return set()


@pytest.fixture
def statements() -> Statements:
    return Statements()


@pytest.fixture
def releaser(statements: Statements) -> Releaser:
    return Releaser(statements=cast("Any", statements), events=Mock())


def ended(job_id: int, seconds: float = 0.01) -> Succeeded:
    return Succeeded(make_claim(id=job_id), seconds)


def test_first_outcome__is_released_at_once(releaser: Releaser, statements: Statements) -> None:
    releaser.put(ended(1))
    assert releaser.was_woken()
    releaser.step()
    assert statements.sizes == [1]


def test_outcomes_of_the_next_moments__are_released_together(releaser: Releaser, statements: Statements) -> None:
    releaser.put(ended(1))
    assert releaser.step() == 0.01
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
        ([5.0], LONGEST_PAUSE),
        ([0.01, 0.005], 0.005),
        ([SHORTEST_PAUSE / 2], math.inf),
        ([1.0, 0.0], math.inf),
    ],
)
def test_pause__is_no_longer_than_the_jobs_were(releaser: Releaser, durations: list[float], pause: float) -> None:
    for job_id, seconds in enumerate(durations):
        releaser.put(ended(job_id, seconds))
    assert releaser.step() == pause


def test_short_jobs__follow_without_a_pause(releaser: Releaser, statements: Statements) -> None:
    def complete(claims: list[Any]) -> set[int]:
        if claims[0].id == 1:
            releaser.put(ended(2, 0.0))
        return {claim.id for claim in claims}

    statements.complete = complete  # type: ignore[method-assign]
    releaser.put(ended(1, 0.0))
    assert releaser.step() == 0.0


def test_queue__ends_the_pause(releaser: Releaser, statements: Statements) -> None:
    releaser.put(ended(1))
    releaser.step()
    releaser.forget_wake()
    releaser.release_queue(QUEUE)
    assert releaser.was_woken(), "expected the next job of the queue to wait for no pause"
    releaser.step()
    assert statements.sizes == [1, 1]


@pytest.mark.parametrize(("value_text", "is_kept"), [("1", True), (None, False)])
def test_result_that_is_kept__ends_the_pause(releaser: Releaser, value_text: str | None, is_kept: bool) -> None:
    releaser.put(ended(1))
    releaser.step()
    releaser.forget_wake()
    releaser.put(Recorded(make_claim(id=2), 0.01, None, 0.0, Mock(), value_text))
    assert releaser.was_woken() is is_kept


def test_returned_jobs__end_the_pause(releaser: Releaser) -> None:
    releaser.put(ended(1))
    releaser.step()
    releaser.forget_wake()
    releaser.return_jobs([Interrupted(make_claim(id=2), 0.0, has_begun=False)], [])
    assert releaser.was_woken()


def test_queue_that_arrives_during_a_statement__prevents_the_pause(releaser: Releaser, statements: Statements) -> None:
    def complete(claims: list[Any]) -> set[int]:
        releaser.release_queue(QUEUE)
        return {claim.id for claim in claims}

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
