"""A chart with its axes and its table of figures."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from django_graphile_worker.admin.charts.chart import Chart, make_chart, rate, whole_number
from django_graphile_worker.admin.charts.chart_axes import periods
from django_graphile_worker.admin.charts.chart_data import SPANS
from django_graphile_worker.admin.charts.drawing import Series
from django_graphile_worker.admin.formatting import EMPTY_VALUE

SPAN = SPANS["hour"]
STARTS = SPAN.starts(datetime(2026, 11, 16, 9, 4, 30, tzinfo=UTC))


def chart(values: list[float | None]) -> Chart:
    padded = [0.0] * (SPAN.points - len(values)) + values
    series = [Series("succeeded", "gw-succeeded", padded)]
    return make_chart(
        "throughput",
        "Throughput",
        summary="",
        unit="jobs per minute, 1-minute buckets",
        series=series,
        periods=periods(STARTS, SPAN),
        format_value=whole_number,
        is_stacked=True,
    )


def test_table__has_a_row_for_each_period_and_says_what_is_unknown() -> None:
    made = chart([1234.0, None, 7.0])
    assert len(made.table) == 60
    assert [values for _, values in made.table[-3:]] == [["1,234"], [EMPTY_VALUE], ["7"]]
    assert made.table[-1][0].endswith("(so far)")


@pytest.mark.parametrize(("highest", "labels"), [(1.0, ["1", "", "0"]), (1234.0, ["2,000", "1,000", "0"])])
def test_value_axis__has_no_number_that_would_be_rounded(highest: float, labels: list[str]) -> None:
    assert chart([highest]).value_labels == labels


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.033, "0.03"), (2.5, "2.50"), (12.34, "12.3"), (1234.5, "1,234")]
)
def test_rates__have_as_many_decimals_as_they_need(value: float, text: str) -> None:
    assert rate(value) == text
