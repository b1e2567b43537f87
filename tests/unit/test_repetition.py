"""What is said once, and then rarely."""

from __future__ import annotations

import pytest

from django_graphile_worker.logs.throttle import Repetitions


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def repetitions(clock: Clock) -> Repetitions:
    return Repetitions(every=60.0, clock=clock)


def test_first_time__is_said(repetitions: Repetitions) -> None:
    assert repetitions.hear("a") == 0
    assert repetitions.hear("b") == 0


def test_again__is_said_once_a_minute_with_a_count(repetitions: Repetitions, clock: Clock) -> None:
    heard = []
    for _ in range(14):
        heard.append(repetitions.hear("a"))
        clock.now += 10.0
    assert heard == [0, *[None] * 5, 5, *[None] * 5, 5, None]


def test_after_a_long_silence__is_news_again(repetitions: Repetitions, clock: Clock) -> None:
    repetitions.hear("a")
    repetitions.hear("a")
    clock.now += 121.0
    assert repetitions.hear("a") == 0


def test_what_is_over__is_news_when_it_begins_again(repetitions: Repetitions) -> None:
    for subject in ("a", "b"):
        repetitions.hear(subject)
    repetitions.forget(lambda subject: subject == "a")
    assert repetitions.hear("a") == 0
    assert repetitions.hear("b") is None
