"""The axes of a chart."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from django_graphile_worker.admin.charts.chart_axes import Period, levels, periods, round_up
from django_graphile_worker.admin.charts.chart_data import SPANS


@pytest.mark.parametrize("most", [0.0, 1.0, 7.0, 9.0, 130.0, 0.033, 1.5, 250.0, 12_345.0])
def test_an_axis_ends_at_a_number_whose_half_is_easy_to_read(most: float) -> None:
    top = round_up(most)
    assert most <= top <= max(most * 2, 1.0)
    digits = f"{top / 2:e}".partition("e")[0].rstrip("0")
    assert len(digits) <= 2, "one digit and zeros: 1.25 was shown as 1.2"


def period_labels(span: str, now: datetime) -> list[Period]:
    return periods(SPANS[span].starts(now), SPANS[span])


NOW = datetime(2026, 11, 16, 9, 4, 30, tzinfo=UTC)


def test_time_axis__has_round_times(settings: Any) -> None:
    settings.TIME_ZONE = "UTC"
    found = {span: [each.tick for each in period_labels(span, NOW) if each.tick] for span in SPANS}
    assert found["hour"] == ["08:10", "08:20", "08:30", "08:40", "08:50", "09:00"]
    assert found["day"] == ["12:00", "16:00", "20:00", "00:00", "04:00", "08:00"]
    assert found["week"] == ["10 Nov", "11 Nov", "12 Nov", "13 Nov", "14 Nov", "15 Nov", "16 Nov"]


def test_periods_of_a_week__are_named_with_their_date(settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Kathmandu"
    week = period_labels("week", NOW)
    assert week[0].label == "Mon 9 Nov 15:45", "the statistics have whole hours of UTC"
    assert week[-1].full_label == "Mon 16 Nov 14:45 (so far)"
    assert [each.is_unfinished for each in week] == [False] * 167 + [True]
    assert next(each.tick for each in week if each.tick) == "10 Nov", "a day begins at midnight of the user's zone"


def test_levels__are_the_end_the_middle_and_zero() -> None:
    assert levels(6.0) == [6.0, 3.0, 0.0]
