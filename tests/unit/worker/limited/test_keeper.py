"""How long the keeper rests after a sorting."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.worker.limited import keeper
from django_graphile_worker.worker.limited.keeper import BATCH, LONGEST_SHORT_REST, REST, Keeper

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


class Waiting:
    """Which jobs wait."""

    def __init__(self, *, ordinary: bool, limited: bool) -> None:
        self._ordinary = ordinary
        self._limited = limited

    def ordinary_jobs_wait(self) -> bool:
        return self._ordinary

    def limited_jobs_wait(self) -> bool:
        return self._limited


@pytest.mark.parametrize(
    ("ordinary", "limited", "rest", "batch"),
    [
        (False, False, 0.0, BATCH),
        (False, True, LONGEST_SHORT_REST, keeper.SMALL_BATCH),
        (True, True, REST * SORTING, keeper.SMALL_BATCH),
    ],
)
def test_rest__is_short_while_only_limited_jobs_wait(
    monkeypatch: pytest.MonkeyPatch, ordinary: bool, limited: bool, rest: float, batch: int
) -> None:
    clock = Clock()
    sorter = SlowSorter(clock)
    unused: Any = None
    service = Keeper(
        database=unused,
        sorter=sorter,  # type: ignore[arg-type]
        tasks=unused,
        events=Waiting(ordinary=ordinary, limited=limited),  # type: ignore[arg-type]
        poll_interval=2.0,
        clock=clock,
    )
    monkeypatch.setattr(service, "sweep", lambda: None)
    assert service.step() == pytest.approx(rest)
    assert sorter.batches == [batch]
