"""Subjects that are admitted once per interval."""

from __future__ import annotations

import pytest

from django_graphile_worker.logs.receivers import Throttle


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def throttle(clock: Clock) -> Throttle:
    return Throttle(clock=clock)


def test_first_time__is_admitted(throttle: Throttle) -> None:
    assert throttle.admit("a") == 0
    assert throttle.admit("b") == 0


def test_again__is_admitted_once_a_minute_with_a_count(throttle: Throttle, clock: Clock) -> None:
    admitted = []
    for _ in range(14):
        admitted.append(throttle.admit("a"))
        clock.now += 10.0
    assert admitted == [0, *[None] * 5, 5, *[None] * 5, 5, None]


def test_after_a_long_silence__is_admitted_at_once(throttle: Throttle, clock: Clock) -> None:
    throttle.admit("a")
    throttle.admit("a")
    clock.now += 121.0
    assert throttle.admit("a") == 0


def test_forgotten_subject__is_admitted_at_once(throttle: Throttle) -> None:
    for subject in ("a", "b"):
        throttle.admit(subject)
    throttle.forget("a")
    assert throttle.admit("a") == 0
    assert throttle.admit("b") is None
