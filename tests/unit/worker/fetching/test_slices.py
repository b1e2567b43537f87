"""Slices of the past: each takes a few milliseconds, and all are looked at in turn."""

from __future__ import annotations

import math

import pytest

from django_graphile_worker.worker.fetching.slices import RECENT, SLICE_COST, Slices

FLOOR = 1_000_000.0
# Seconds of the past that have entries, and the seconds that it takes to read those of one second.
PAST = 600.0
COST_OF_SECOND = 0.0005


def read(slices: Slices, cost_of_second: float = COST_OF_SECOND) -> tuple[float, float]:
    """Look at the next period; return it."""
    start, end = slices.next(FLOOR)
    seconds = min(end, FLOOR) - max(start, FLOOR - PAST)
    slices.note(max(seconds, 0.0) * cost_of_second, FLOOR, is_filled=False)
    return start, end


def adapted() -> Slices:
    slices = Slices()
    for _ in range(1000):
        read(slices)
    return slices


def read_round(slices: Slices) -> list[tuple[float, float]]:
    """Look at each slice once, from the first on; return the slices."""
    periods = [read(slices) for _ in range(8 * len(slices))]
    others = [period for period in periods if period[0] != FLOOR - RECENT]
    first = next(place for place, period in enumerate(others) if period[0] == -math.inf)
    last = next(place for place, period in enumerate(others[first:], first) if period[1] == FLOOR)
    return others[first : last + 1]


def test_slices__are_divided_until_each_takes_a_few_milliseconds() -> None:
    periods = read_round(adapted())
    costs = [(min(end, FLOOR) - max(start, FLOOR - PAST)) * COST_OF_SECOND for start, end in periods]
    assert max(costs) <= SLICE_COST * 1.01
    assert len(periods) < 4 * PAST * COST_OF_SECOND / SLICE_COST


def test_slices__leave_no_gap() -> None:
    periods = read_round(adapted())
    assert periods[0][0] == -math.inf
    assert periods[-1][1] == FLOOR
    assert [end for _, end in periods[:-1]] == [start for start, _ in periods[1:]]


def test_every_other_look__is_at_what_has_just_passed() -> None:
    slices = adapted()
    assert [read(slices)[0] == FLOOR - RECENT for _ in range(6)] in ([True, False] * 3, [False, True] * 3)


def test_slice_with_more_jobs_than_were_wanted__is_looked_at_again() -> None:
    slices = adapted()
    period = slices.next(FLOOR)
    slices.note(0.001, FLOOR, is_filled=True)
    assert slices.next(FLOOR) == period


def test_slices__are_joined_when_they_cost_nothing_any_more() -> None:
    slices = adapted()
    for _ in range(1000):
        read(slices, cost_of_second=0.0)
    assert len(slices) == 1
    assert slices.cost == 0


def test_cost__is_unknown_before_all_slices_were_looked_at() -> None:
    slices = Slices()
    assert slices.cost == math.inf
    read(slices)
    read(slices)
    assert slices.cost == pytest.approx(PAST * COST_OF_SECOND)


def test_slice_of_one_moment__is_not_divided_for_ever() -> None:
    slices = Slices()
    for _ in range(2000):
        start, end = slices.next(FLOOR)
        slices.note(1.0 if start < FLOOR - 5 <= end else 0.0, FLOOR, is_filled=False)
    assert len(slices) < 60
