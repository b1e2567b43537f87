"""The charts: tables and axes, images, and the contrast of their colours."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib.resources import files
from itertools import pairwise
from typing import Any

import pytest

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.charts import (
    SPANS,
    Chart,
    Period,
    Series,
    draw_bars,
    draw_lines,
    highest_bar,
    highest_point,
    levels,
    make_chart,
    periods,
    rate,
    round_up,
)
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
        format_value=formatting.number,
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


STYLES = files("django_graphile_worker").joinpath("static/graphile_worker/charts.css").read_text(encoding="utf-8")
SCHEMES = ("light", "dark")
# White, the cards of Django's dark theme, and the cards of Bootstrap's dark theme, which are lighter.
CARDS = {"light": ("#ffffff",), "dark": ("#1a1a1a", "#212529")}
NEIGHBOURS = {
    "throughput": ("succeeded", "retrying", "failed"),
    "failures": ("retrying", "failed"),
    "percentiles": ("p50", "p95"),
    "backlog": ("p50", "retrying", "succeeded"),
}


def colour(name: str, scheme: str) -> str:
    light, dark = re.findall(rf"--gw-chart-{name}: light-dark\((#\w{{6}}), (#\w{{6}})\)", STYLES)[0]
    return str(light if scheme == "light" else dark)


def luminance(value: str) -> float:
    parts = [int(value[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted([luminance(one), luminance(other)])
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("chart", NEIGHBOURS)
def test_neighbouring_series__have_a_contrast_of_three_to_one(chart: str, scheme: str) -> None:
    colours = [colour(name, scheme) for name in NEIGHBOURS[chart]]
    assert [contrast(*pair) >= 3 for pair in pairwise(colours)] == [True] * (len(colours) - 1), colours
    assert all(contrast(each, card) >= 3 for each in colours for card in CARDS[scheme]), colours


def test_lines_of_one_chart__have_different_styles() -> None:
    """Hue and brightness are not the only difference."""
    styles = {
        name: re.findall(rf"\.gw-line\.{name} {{[^}}]*stroke-dasharray: ([^;]*);", STYLES)
        for name in ("gw-p95", "gw-waits-for-retry", "gw-running-jobs")
    }
    assert all(styles.values())
    assert styles["gw-waits-for-retry"] != styles["gw-running-jobs"]


def test_bars__are_stacked_and_the_last_is_unfinished() -> None:
    series = [Series("a", "gw-a", [1.0, 0.0, 2.0]), Series("b", "gw-b", [1.0, None, 2.0], is_striped=True)]
    assert highest_bar(series) == 4.0
    bars = re.findall(
        r'<rect class="gw-bar ([^"]*)"([^>]*) y="([\d.]+)%" width="[^"]*" height="([\d.]+)%"', draw_bars(series, 4.0)
    )
    assert [(css, top, height) for css, _, top, height in bars] == [
        ("gw-a", "75.00", "25.00"),
        ("gw-b", "50.00", "25.00"),
        ("gw-a gw-unfinished", "50.00", "50.00"),
        ("gw-b gw-unfinished", "0.00", "50.00"),
    ]
    assert ["gw-stripes" in rest for _, rest, _, _ in bars] == [False, True, False, True]


def test_small_values__stay_visible() -> None:
    (height,) = re.findall(r'height="([\d.]+)%"/>', draw_bars([Series("a", "gw-a", [1.0, 0.0])], 1_000_000.0))
    assert float(height) == 1.0


def test_lines__have_gaps_where_a_value_is_unknown() -> None:
    series = Series("a", "gw-a", [1.0, 1.0, None, 0.0, 2.0, None, 2.0, 2.0])
    assert highest_point([series]) == 2.0
    paths = re.findall(r'<path class="gw-line ([^"]*)" d="([^"]*)"', draw_lines([series], 2.0))
    assert [css for css, _ in paths] == ["gw-a", "gw-a gw-unfinished"]
    assert paths[0][1] == "M0.2 50.00L0.5 50.00L1.5 50.00M3.2 100.00L3.5 100.00L4.5 0.00M6.2 0.00L6.5 0.00"
    assert paths[1][1] == "M6.2 0.00L6.5 0.00L7.5 0.00", "the way to the last period"


def test_unknown_last_value__is_not_drawn() -> None:
    assert "gw-unfinished" not in draw_lines([Series("a", "gw-a", [1.0, 1.0, None])], 1.0)


def test_images__have_no_text() -> None:
    assert "<text" not in draw_bars([Series("a", "gw-a", [1.0, 2.0])], 2.0)
    assert "<text" not in draw_lines([Series("a", "gw-a", [1.0, 2.0])], 2.0)


def test_a_value_without_neighbours__is_a_point_that_can_be_seen() -> None:
    def points(*values: float | None) -> list[str]:
        return re.findall(r'gw-point" d="([^"]*)"', draw_lines([Series("a", "gw-a", values)], 2.0))

    assert points(None, None, 1.0) == ["M2.5 50.00h0"]
    assert points(2.0, None, 1.0, 1.0) == ["M0.5 0.00h0"]
    assert points(2.0, 2.0, None, None) == []
