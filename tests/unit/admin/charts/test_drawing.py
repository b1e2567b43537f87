"""The images of charts: stacked bars, lines with gaps, an unfinished period, and colours that can be told apart."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import pairwise

import pytest

from django_graphile_worker.admin.charts.drawing import Series, draw_bars, draw_lines, highest_bar, highest_point

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
