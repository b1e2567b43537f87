"""When the releaser sends its statements: at once, or together with the outcomes of the next moments."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import Failed, Interrupted, Recorded, Succeeded
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


def test_warm_up__is_done_once_before_the_first_outcome(releaser: Releaser, statements: Statements) -> None:
    releaser.warm_up()
    assert releaser.step() == math.inf
    releaser.put(ended(1))
    releaser.step()
    assert statements.sizes == [0, 1]


def test_warm_up__is_left_out_if_an_outcome_is_there(releaser: Releaser, statements: Statements) -> None:
    releaser.warm_up()
    releaser.put(ended(1))
    releaser.step()
    releaser.step()
    assert statements.sizes == [1]


@pytest.mark.parametrize("has_outcome", [False, True])
def test_warm_up__that_fails_is_reported_if_an_outcome_waits(
    releaser: Releaser, statements: Statements, has_outcome: bool
) -> None:
    def fail() -> None:
        if has_outcome:
            releaser.put(ended(1))
        raise psycopg.OperationalError("no server")

    statements.rehearse = fail  # type: ignore[method-assign]
    releaser.warm_up()
    releaser.attempt()
    assert isinstance(releaser.trouble, psycopg.OperationalError) is has_outcome
    releaser.attempt()
    assert releaser.trouble is None
    assert statements.sizes == [1] * has_outcome


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


class WatchedInbox(deque[Any]):
    """Asks, for each outcome that is taken, whether the releaser counts as empty."""

    def __init__(self, releaser: Releaser) -> None:
        super().__init__()
        self._releaser = releaser
        self.answers: list[bool] = []

    def popleft(self) -> Any:
        outcome = super().popleft()
        self.answers.append(self._releaser.wait_until_empty(0))
        return outcome


def test_outcome_that_arrives_while_a_step_begins__keeps_the_releaser_from_being_empty(releaser: Releaser) -> None:
    inbox = releaser._inbox = WatchedInbox(releaser)
    # As in a step that something else has called for.
    releaser._is_resting = False
    releaser.put(ended(1))
    releaser.step()
    assert inbox.answers == [False]
    releaser.step()
    assert releaser.wait_until_empty(0)


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


def test_failure__ends_the_pause(releaser: Releaser) -> None:
    """A session may wait for the result, or the job for its next attempt."""
    releaser.put(ended(1))
    releaser.step()
    releaser.forget_wake()
    releaser.put(Failed(make_claim(id=2), 0.01, "Error: no"))
    assert releaser.was_woken()


def test_returned_jobs__end_the_pause(releaser: Releaser) -> None:
    releaser.put(ended(1))
    releaser.step()
    releaser.forget_wake()
    releaser.return_jobs([Interrupted(make_claim(id=2), 0.0, has_begun=False)], [])
    assert releaser.was_woken()


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
