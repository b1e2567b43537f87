"""A span of time that has enough rows and not many more, found by few counts."""

from __future__ import annotations

import random
from bisect import bisect_right

import pytest

from django_graphile_worker.sql.inspection.past_attempts import MAX_SPAN, find_span

DAY = 86_400.0
ENOUGH, MOST = 100, 1_200


class Rows:
    """Rows by their ages in seconds, and how often they were counted."""

    def __init__(self, ages: list[float]) -> None:
        self.ages = sorted(ages)
        self.counts = 0

    def within(self, span: float) -> int:
        return bisect_right(self.ages, span)

    def count(self, span: float) -> int:
        self.counts += 1
        return min(self.within(span), MOST)

    def find_span(self, longest: float = MAX_SPAN) -> float:
        return find_span(self.count, longest=longest, enough=ENOUGH, most=MOST)


@pytest.mark.parametrize("pause", [60, DAY / 2, 40 * DAY])
@pytest.mark.parametrize("before", [0, 50])
def test_rows_before_a_pause__are_found_without_all_of_them(pause: float, before: int) -> None:
    few = [float(number) for number in range(before)]
    rows = Rows([*few, *(pause + number / 60 for number in range(200_000))])
    assert ENOUGH <= rows.within(rows.find_span()) < MOST
    assert rows.counts <= 30


def test_more_rows_of_one_time_than_a_span_should_have__are_all_read() -> None:
    rows = Rows([1.0, 2.0, *[3_000.0] * 5_000, *[4_000.0] * 5_000])
    span = rows.find_span()
    assert rows.within(span) == 5_002
    assert rows.counts <= 40


def test_any_rows__are_enough() -> None:
    chosen = random.Random(7)
    for _ in range(200):
        ages = [chosen.random() ** chosen.randint(1, 9) * 10 ** chosen.randint(0, 7) for _ in range(5_000)]
        rows = Rows(ages)
        assert rows.within(rows.find_span()) >= ENOUGH
        assert rows.counts <= 50
