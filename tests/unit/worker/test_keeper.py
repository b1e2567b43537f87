"""How long the keeper rests after a sorting, and which flags make a lane."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import pytest

from django_graphile_worker.worker.limited import BATCH, LONGEST_SHORT_REST, REST, SMALL_BATCH, Keeper, _flags

SORTING = 0.05


class Clock:
    """A clock that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Found:
    """The result of a sorting that has parked jobs, and left more."""

    parked = 10
    has_more = True
    has_ready = False


class SlowSorter:
    """A sorter on a busy machine."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.batches: list[int] = []

    def sort(self, most: int) -> Found:
        self.batches.append(most)
        self._clock.now += SORTING
        return Found()


@pytest.mark.parametrize(
    ("ordinary_wait", "limited_wait", "rest", "batch"),
    [
        (False, False, 0.0, BATCH),
        (False, True, LONGEST_SHORT_REST, SMALL_BATCH),
        (True, True, REST * SORTING, SMALL_BATCH),
    ],
)
def test_rest__is_short_while_only_limited_jobs_wait(
    monkeypatch: pytest.MonkeyPatch, ordinary_wait: bool, limited_wait: bool, rest: float, batch: int
) -> None:
    clock = Clock()
    sorter = SlowSorter(clock)
    limited: Any = Mock()
    limited.claimer.has_ordinary_backlog, limited.claimer.is_limited_waiting = ordinary_wait, limited_wait
    service = Keeper(Mock(), limited, clock=clock)
    monkeypatch.setattr(service, "_sorter", sorter)
    monkeypatch.setattr(service, "sweep", lambda: None)
    assert service.step() == pytest.approx(rest)
    assert sorter.batches == [batch]


def test_lane__has_no_flags_that_differ_from_job_to_job() -> None:
    own = {"expires:1780315200": True, "schedule:17:3600": True, "crontab:3600": True}
    assert _flags(json.dumps(own)) is None
    assert _flags(json.dumps({**own, "slow": True, "schedule:daily": True})) == json.dumps(
        {"schedule:daily": True, "slow": True}
    )
