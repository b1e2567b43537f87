from __future__ import annotations

import pytest

from django_graphile_worker.worker.limited.start_deadlines import StartDeadlines
from tests.support.slot import make_claim


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def deadlines(clock: Clock) -> StartDeadlines:
    return StartDeadlines(clock)


def start(deadlines: StartDeadlines, clock: Clock, *, after: float, within: float = 0.05) -> bool:
    """Claim a job, and start it some seconds later; return whether it may begin."""
    claim = make_claim()
    deadlines.add([claim], clock.now, within + deadlines.slack)
    clock.now += after
    return deadlines.after(lambda _: True)(claim)


def test_quick_starts__need_no_slack(deadlines: StartDeadlines, clock: Clock) -> None:
    assert start(deadlines, clock, after=0.01)
    assert deadlines.slack == 0


def test_a_late_start__is_refused_once_and_then_expected(deadlines: StartDeadlines, clock: Clock) -> None:
    assert not start(deadlines, clock, after=0.2)
    assert all(start(deadlines, clock, after=0.2) for _ in range(50))


def test_slack__is_given_up_when_starts_are_quick_again(deadlines: StartDeadlines, clock: Clock) -> None:
    start(deadlines, clock, after=1)
    assert deadlines.slack > 1
    for _ in range(200):
        start(deadlines, clock, after=0.001)
    assert deadlines.slack == 0


def test_jobs_without_a_rate__are_not_measured(deadlines: StartDeadlines, clock: Clock) -> None:
    timed, untimed = make_claim(id=1), make_claim(id=2)
    deadlines.add([timed], clock.now, 0.05)
    clock.now += 10
    assert deadlines.after(lambda _: True)(untimed)
    assert deadlines.slack == 0
