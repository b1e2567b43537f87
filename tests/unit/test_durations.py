from __future__ import annotations

import pytest

from django_graphile_worker.durations import in_largest_unit, readable_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "<0.1 ms"),
        (0.00002, "<0.1 ms"),
        (0.0004, "0.4 ms"),
        (0.00097, "1 ms"),
        (0.0123, "12 ms"),
        (0.9999, "1 s"),
        (2.44, "2.4 s"),
        (7, "7 s"),
        (9.97, "10 s"),
        (55.2, "55 s"),
        (119.4, "119 s"),
        (1097, "18 min"),
        (3_569, "59 min"),
        (3_590, "1 h"),
        (7_500, "2 h 5 min"),
        (21_600, "6 h"),
        (86_400, "1 d"),
        (273_600, "3 d 4 h"),
    ],
)
def test_readable_duration__is_as_people_say_it(seconds: float, text: str) -> None:
    assert readable_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 m"), (-7_500, "2 h"), (86_400 * 3.5, "3 d"), (86_400 * 800, "2 y")],
)
def test_largest_unit__is_written_and_nothing_below_it(seconds: float, text: str) -> None:
    assert in_largest_unit(seconds) == text
