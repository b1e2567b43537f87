"""How many jobs to claim beyond the free slots, and how many slots run them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from django_graphile_worker.worker.fetching.fetcher import ADJUST_INTERVAL, CALM, MeanDuration, Prefetch, SlotDemand

SHORT = 0.00001

# How long the last jobs took, on average.


def test_one_interrupted_job_of_thousands__changes_little() -> None:
    duration = MeanDuration()
    duration.add(1000, 0.01)
    duration.add(3, 0.01)
    assert duration.seconds == pytest.approx(0.0002, rel=0.1)
    duration.add(1000, 0.01)
    assert duration.seconds == pytest.approx(0.00002, rel=0.1)


# How many waiting jobs are so few that the next claim must begin, and how many jobs are claimed ahead.


class MeasuredPool(SimpleNamespace):
    """A pool of five slots, whose jobs took this long."""

    concurrency = 5

    def totals(self) -> tuple[int, float]:
        return 100, 100 * self.seconds


@pytest.mark.parametrize(
    ("seconds", "ahead", "low_water"),
    [
        # Two thousand empty jobs last for moments only: the next claim begins early.
        (0.00001, 2000, 1500),
        # A hundred jobs of ten milliseconds are claimed when six are left, so a claim brings about ninety.
        (0.01, 100, 6),
        (0.1, 10, 0),
        (0.6, 0, 0),
    ],
)
def test_low_water__is_what_the_slots_run_during_a_claim(seconds: float, ahead: int, low_water: int) -> None:
    now = [0.0]
    prefetch = Prefetch(cast("Any", MeasuredPool(seconds=seconds)), clock=lambda: now[0])
    prefetch.note_claim(is_full=True)
    now[0] = 1.0
    assert prefetch.ahead(2000) == ahead
    assert prefetch.low_water(ahead) == low_water


def test_long_jobs__are_claimed_ahead_when_claims_have_been_full_for_as_long_as_a_job() -> None:
    """After one full claim, another worker may have free slots for the rest of the jobs."""
    now = [0.0]
    prefetch = Prefetch(cast("Any", MeasuredPool(seconds=0.1)), clock=lambda: now[0])
    prefetch.note_claim(is_full=True)
    assert prefetch.ahead(2000) == 0
    now[0] = 0.09
    prefetch.note_claim(is_full=True)
    assert prefetch.ahead(2000) == 0
    now[0] = 0.11
    assert prefetch.ahead(2000) == 2
    prefetch.note_claim(is_full=False)
    assert prefetch.ahead(2000) == 0
    prefetch.note_claim(is_full=True)
    assert prefetch.ahead(2000) == 0


def test_more_jobs__are_claimed_ahead_when_claims_have_been_full_for_longer() -> None:
    now = [0.0]
    prefetch = Prefetch(cast("Any", MeasuredPool(seconds=0.01)), clock=lambda: now[0])
    prefetch.note_claim(is_full=True)
    assert prefetch.ahead(2000) == 25
    now[0] = 0.19
    prefetch.note_claim(is_full=True)
    assert prefetch.ahead(2000) == 25
    now[0] = 0.21
    assert prefetch.ahead(2000) == 100
    prefetch.note_claim(is_full=False)
    assert prefetch.ahead(2000) == 25


# How many slots run the jobs that wait.


class SlotsPool:
    """A pool of ten slots that notes what it is asked for."""

    concurrency = 10

    def __init__(self) -> None:
        self.now = 0.0
        self.backlog = 0
        self.resting: set[int] = set()
        self.asked: list[tuple[str, int]] = []
        self._finished = [0] * 11
        self._seconds = 0.0
        self.demand = SlotDemand(cast("Any", self), clock=lambda: self.now)

    def finish(self, slots: int, jobs: int, seconds: float) -> None:
        """Have each of these slots finish jobs that took this long."""
        for slot in range(slots):
            self._finished[slot] += jobs
        self._seconds += slots * jobs * seconds

    def look(self, after: float = ADJUST_INTERVAL) -> list[tuple[str, int]]:
        """Let time pass; return what the next look asks for."""
        self.now += after
        self.asked.clear()
        self.demand.adjust()
        return self.asked

    def finished(self) -> list[int]:
        return self._finished.copy()

    def typical_seconds(self) -> float:
        return self._seconds

    def running_since(self, finished: list[int]) -> int:
        return sum(
            before < after and slot not in self.resting
            for slot, (before, after) in enumerate(zip(finished, self._finished, strict=True))
        )

    def call(self, slots: int) -> None:
        self.asked.append(("call", slots))

    def rest(self, slots: int) -> None:
        self.asked.append(("rest", slots))


@pytest.mark.parametrize(("seconds", "callers"), [(None, 10), (SHORT, 1), (0.00008, 2), (0.00025, 4), (0.01, 101)])
def test_new_jobs__call_as_many_slots_as_the_last_jobs_were_worth(seconds: float | None, callers: int) -> None:
    pool = SlotsPool()
    if seconds is not None:
        pool.finish(1, 100, seconds)
    assert pool.demand.callers() == callers


def test_no_job_has_finished__calls_all_slots() -> None:
    pool = SlotsPool()
    pool.finish(1, 100, SHORT)
    pool.demand.callers()
    pool.backlog = 5
    assert pool.look(after=ADJUST_INTERVAL / 2) == []
    assert pool.look(after=ADJUST_INTERVAL) == [("call", 10)]


def test_short_jobs__are_left_to_one_slot() -> None:
    pool = SlotsPool()
    pool.backlog = 1000
    pool.finish(4, 50, SHORT)
    assert pool.look() == [("rest", 3)]
    pool.resting = {1, 2, 3}
    pool.finish(1, 50, SHORT)
    assert pool.look() == []


def test_slots_that_rest__are_called_if_no_other_slot_runs_jobs() -> None:
    pool = SlotsPool()
    pool.backlog = 1000
    pool.finish(1, 50, SHORT)
    pool.resting = {0}
    assert pool.look() == [("call", 1)]


def test_slots__do_not_rest_for_a_while_after_a_long_job() -> None:
    """Otherwise, one long job in a hundred would again and again leave the short jobs without a slot."""
    pool = SlotsPool()
    pool.backlog = 1000
    assert pool.look() == [("call", 10)]
    pool.finish(10, 50, SHORT)
    assert pool.look() == []
    pool.finish(10, 50, SHORT)
    assert pool.look(after=CALM) == [("rest", 9)]
