"""How many slots run the jobs that wait."""

from __future__ import annotations

from typing import Any, cast

import pytest

from django_graphile_worker.worker.fetching.slot_demand import CALM, SECOND_LOOK, SlotDemand

SHORT = 0.00001


class Pool:
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

    def look(self, after: float = SECOND_LOOK) -> list[tuple[str, int]]:
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
    pool = Pool()
    if seconds is not None:
        pool.finish(1, 100, seconds)
    assert pool.demand.callers() == callers


def test_new_jobs_behind_others__are_left_to_the_slots_at_work() -> None:
    pool = Pool()
    pool.backlog = 1
    assert pool.demand.callers() == 0


def test_no_job_has_finished__calls_all_slots() -> None:
    pool = Pool()
    pool.finish(1, 100, SHORT)
    pool.demand.callers()
    pool.backlog = 5
    assert pool.look(after=SECOND_LOOK / 2) == []
    assert pool.look(after=SECOND_LOOK) == [("call", 10)]


def test_jobs_that_take_longer_than_expected__call_all_slots() -> None:
    pool = Pool()
    pool.backlog = 5
    pool.finish(1, 2, 0.001)
    assert pool.look() == [("call", 10)]


def test_short_jobs__are_left_to_one_slot() -> None:
    pool = Pool()
    pool.backlog = 1000
    pool.finish(4, 50, SHORT)
    assert pool.look() == [("rest", 3)]
    pool.resting = {1, 2, 3}
    pool.finish(1, 50, SHORT)
    assert pool.look() == []


def test_slots_that_rest__are_called_if_no_other_slot_runs_jobs() -> None:
    pool = Pool()
    pool.backlog = 1000
    pool.finish(1, 50, SHORT)
    pool.resting = {0}
    assert pool.look() == [("call", 1)]


def test_slots__do_not_rest_for_a_while_after_a_long_job() -> None:
    """Otherwise, one long job in a hundred would again and again leave the short jobs without a slot."""
    pool = Pool()
    pool.backlog = 1000
    assert pool.look() == [("call", 10)]
    pool.finish(10, 50, SHORT)
    assert pool.look() == []
    pool.finish(10, 50, SHORT)
    assert pool.look(after=CALM) == [("rest", 9)]


def test_no_job_waits__asks_for_nothing() -> None:
    pool = Pool()
    assert pool.look() == []
