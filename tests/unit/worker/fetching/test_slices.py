"""Slices of the past: each takes a few milliseconds, and all are looked at in turn."""

from __future__ import annotations

import math

from django_graphile_worker.worker.fetching.slices import (
    LOOKS_PER_RECENT,
    LOOKS_PER_TURN,
    SLICE_JOBS,
    SLICE_PAGES,
    Place,
    Slices,
)

FLOOR = 1_000_000.0
# Seconds of the past that have entries, and the pages of one second.
PAST = 600.0
PAGES_OF_SECOND = 30


def read(slices: Slices, pages_of_second: float = PAGES_OF_SECOND) -> tuple[float, float]:
    """Look at the next period; return it."""
    (start, _), (end, _) = slices.next(FLOOR)
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
    for _ in range(LOOKS_PER_TURN):
        assert slices.next(FLOOR) == period
        slices.note(1, FLOOR, is_filled=True)
    assert slices.next(FLOOR) != period, "another slice has its turn"


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
        (start, _), (end, _) = slices.next(FLOOR)
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
    assert min(start for start, _ in periods) == (-math.inf, 0)
    assert len(set(periods)) > len(slices) / 2


def test_slices__begin_at_no_time_that_the_server_does_not_know() -> None:
    """Jobs that are due at -infinity cannot be divided."""
    slices = Slices()
    starts = set()
    for _ in range(2000):
        (start, _), _ = slices.next(FLOOR)
        starts.add(start)
        slices.note(SLICE_PAGES * 9 if start == -math.inf else 0, FLOOR, is_filled=False)
    assert min(starts - {-math.inf}) > -210_866_803_200


class Moments:
    """Jobs that were added together: thousands with one due time each."""

    def __init__(self, *, jobs: int = 100_000, pages_of_job: float = 0.013) -> None:
        self.slices = Slices()
        self.jobs = jobs
        self.pages_of_job = pages_of_job
        # The due times, each with the ids of its jobs.
        self.ids: dict[float, tuple[int, int]] = {}
        self.floor = FLOOR - PAST

    def add(self, run_at: float) -> None:
        first = self.jobs * len(self.ids) + 1
        self.ids[run_at] = first, first + self.jobs - 1
        self.floor = run_at + 1

    def claim(self, run_at: float, batch: int = 1000) -> None:
        first, last = self.ids[run_at]
        for job_id in range(first + batch - 1, last + 1, batch):
            self.slices.note_claimed(batch, (run_at, job_id))

    def pages(self, start: Place, end: Place) -> int:
        found = 0
        for run_at, (first, last) in self.ids.items():
            after = start[1] if start[0] == run_at else -1 if start[0] < run_at else last
            until = end[1] if end[0] == run_at else last if end[0] > run_at else 0
            found += max(min(last, until) - max(first - 1, after), 0)
        return round(found * self.pages_of_job)

    def look(self) -> tuple[Place, Place, int]:
        start, end = self.slices.next(self.floor)
        pages = self.pages(start, end)
        self.slices.note(pages, self.floor, is_filled=False)
        return start, end, pages

    def round(self) -> list[tuple[Place, Place, int]]:
        """Look at each slice once, from the first on; return the looks."""
        looks = [self.look() for _ in range(4 * len(self.slices))]
        first = next(number for number, (start, _, _) in enumerate(looks) if start[0] == -math.inf)
        slices, place = [], (-math.inf, 0)
        for start, end, pages in looks[first:]:
            if start == place:
                slices.append((start, end, pages))
                place = end
        return slices


def assert_bounded(moments: Moments) -> None:
    assert max(pages for _, _, pages in (moments.look() for _ in range(500))) <= SLICE_PAGES * 1.2
    slices = moments.round()
    # No gap, and each is between two times, or a part of one moment.
    assert slices[-1][1][0] == moments.floor
    for (start, start_id), (end, end_id), _ in slices[:-1]:
        assert not (start_id or end_id) or end == start or (end - start < 2e-6 and not end_id)


def test_moment_whose_jobs_this_worker_claims__is_never_one_slice() -> None:
    moments = Moments()
    most = 0
    for number in range(5):
        moments.add(FLOOR - PAST + number * 10)
        moments.claim(FLOOR - PAST + number * 10)
        most = max(most, *(moments.look()[2] for _ in range(20)))
    assert most <= SLICE_PAGES * 1.5
    assert_bounded(moments)
    assert len(moments.slices) < 3 * 5 * 1300 / SLICE_PAGES + 10


def test_moments_whose_jobs_others_have_claimed__are_divided_by_looks() -> None:
    moments = Moments()
    for number in range(3):
        moments.add(FLOOR - PAST + number * 7.123457)
    # The highest id that is known: of any job.
    moments.slices.note_claimed(1, (moments.floor, 300_001))
    for _ in range(1000):
        moments.look()
    assert_bounded(moments)


def test_moment_that_the_floor_is_in__is_divided_before_the_next_moment() -> None:
    moments = Moments()
    moments.add(FLOOR - 100)
    moments.floor = FLOOR - 100
    moments.claim(FLOOR - 100)
    for _ in range(200):
        moments.look()
    moments.floor = FLOOR
    for _ in range(200):
        moments.look()
    assert_bounded(moments)


def test_job_anywhere_before_the_floor__is_in_one_of_the_looks_of_a_round() -> None:
    moments = Moments()
    for number in range(4):
        moments.add(FLOOR - PAST + number * 10)
        moments.claim(FLOOR - PAST + number * 10)
    for _ in range(300):
        moments.look()
    moment = FLOOR - PAST + 20
    first, last = moments.ids[moment]
    times = [(-math.inf, 1), (FLOOR - 2 * PAST, 7), (moment - 5, 1), (moment + 1e-6, 1), (moments.floor, 1)]
    for place in [*times, *((moment, job_id) for job_id in (1, first, (first + last) // 2, last, last + 1))]:
        looks = [moments.look() for _ in range(2 * len(moments.slices))]
        assert any(start < place <= end for start, end, _ in looks), place


def test_parts_of_a_moment__are_joined_when_they_cost_nothing_any_more() -> None:
    moments = Moments()
    moments.add(FLOOR - 100)
    moments.claim(FLOOR - 100)
    for _ in range(100):
        moments.look()
    assert len(moments.slices) > 100_000 / SLICE_JOBS / 2
    moments.ids.clear()
    for _ in range(1000):
        moments.look()
    assert len(moments.slices) == 1


def test_jobs_without_a_time__are_not_divided() -> None:
    slices = Slices()
    slices.note_claimed(SLICE_JOBS, (-math.inf, 7))
    assert len(slices) == 1
