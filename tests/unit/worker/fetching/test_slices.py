"""Slices of the past: each takes a few milliseconds, and all are looked at in turn."""

from __future__ import annotations

import math

from django_graphile_worker.worker.fetching.slices import LOOKS_PER_RECENT, SLICE_PAGES, Slices

FLOOR = 1_000_000.0
# Seconds of the past that have entries, and the pages of one second.
PAST = 600.0
PAGES_OF_SECOND = 30


def read(slices: Slices, pages_of_second: float = PAGES_OF_SECOND) -> tuple[float, float]:
    """Look at the next period; return it."""
    start, end = slices.next(FLOOR)
    seconds = min(end, FLOOR) - max(start, FLOOR - PAST)
    slices.note(round(max(seconds, 0.0) * pages_of_second), FLOOR, is_filled=False)
    return start, end


def adapted() -> Slices:
    slices = Slices()
    for _ in range(1000):
        read(slices)
    return slices


def read_round(slices: Slices) -> list[tuple[float, float]]:
    """Look at each slice once, from the first on; return the slices."""
    periods = [read(slices) for _ in range(8 * len(slices))]
    others = [period for number, period in enumerate(periods, 1000) if number % LOOKS_PER_RECENT]
    first = next(place for place, period in enumerate(others) if period[0] == -math.inf)
    last = next(place for place, period in enumerate(others[first:], first) if period[1] == FLOOR)
    return others[first : last + 1]


def test_slices__are_divided_until_each_takes_a_few_milliseconds() -> None:
    periods = read_round(adapted())
    pages = [(min(end, FLOOR) - max(start, FLOOR - PAST)) * PAGES_OF_SECOND for start, end in periods]
    assert max(pages) <= SLICE_PAGES + 1
    assert len(periods) < 4 * PAST * PAGES_OF_SECOND / SLICE_PAGES


def test_slices__leave_no_gap() -> None:
    periods = read_round(adapted())
    assert periods[0][0] == -math.inf
    assert periods[-1][1] == FLOOR
    assert [end for _, end in periods[:-1]] == [start for start, _ in periods[1:]]


def test_every_fourth_look__is_at_what_has_just_passed() -> None:
    slices = adapted()
    recent = [read(slices) for _ in range(10 * LOOKS_PER_RECENT)][::LOOKS_PER_RECENT]
    assert {end for _, end in recent} == {FLOOR}
    widths = [end - start for start, end in recent]
    assert min(widths) * PAGES_OF_SECOND > 0.3 * SLICE_PAGES
    assert max(widths) * PAGES_OF_SECOND < 1.3 * SLICE_PAGES


def test_slice_with_more_jobs_than_were_wanted__is_looked_at_again() -> None:
    slices = adapted()
    period = slices.next(FLOOR)
    slices.note(1, FLOOR, is_filled=True)
    assert slices.next(FLOOR) == period


def test_slices__are_joined_when_they_cost_nothing_any_more() -> None:
    slices = adapted()
    for _ in range(1000):
        read(slices, pages_of_second=0)
    assert len(slices) == 1
    assert slices.pages == 0


def test_pages__are_unknown_before_all_slices_were_looked_at() -> None:
    slices = Slices()
    assert slices.pages == math.inf
    read(slices, pages_of_second=0.1)
    read(slices, pages_of_second=0.1)
    assert slices.pages == PAST / 10


def test_slice_of_one_moment__is_not_divided_for_ever() -> None:
    slices = Slices()
    for _ in range(2000):
        start, end = slices.next(FLOOR)
        slices.note(SLICE_PAGES * 9 if start < FLOOR - 5 <= end else 0, FLOOR, is_filled=False)
    assert len(slices) < 60


def test_slice_that_stays_full__does_not_keep_the_others_from_being_read() -> None:
    slices = adapted()
    full = slices.next(FLOOR)
    periods = []
    for _ in range(8 * len(slices)):
        periods.append(slices.next(FLOOR))
        slices.note(1, FLOOR, is_filled=periods[-1] == full)
    assert periods.count(full) >= len(periods) // 2
    assert min(start for start, _ in periods) == -math.inf
    assert len(set(periods)) > len(slices) / 2


def test_slices__begin_at_no_time_that_the_server_does_not_know() -> None:
    """Jobs that are due at -infinity cannot be divided."""
    slices = Slices()
    starts = set()
    for _ in range(2000):
        start, _ = slices.next(FLOOR)
        starts.add(start)
        slices.note(SLICE_PAGES * 9 if start == -math.inf else 0, FLOOR, is_filled=False)
    assert min(starts - {-math.inf}) > -210_866_803_200
