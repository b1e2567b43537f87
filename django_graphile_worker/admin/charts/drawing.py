"""Draws the image of a chart as SVG, without text, without a script, and without a style attribute.

The image has no coordinates of its own: bars have percentages, so that a chart of any width has lines of the same
thickness. Paths cannot have percentages, so each is in an inner image that is stretched. Colours are CSS classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from django_graphile_worker.admin.charts.chart_axes import LEVELS

# Small values stay visible: a bar has at least this height, in percent.
LEAST_HEIGHT = 1.0
# The part of a period that its bar takes.
BAR_SHARE = 0.84


@dataclass(frozen=True, slots=True)
class Series:
    """A name, a CSS class for colour and line style, and a value for each period (None: unknown)."""

    name: str
    css_class: str
    values: Sequence[float | None]
    is_striped: bool = False

    @property
    def fill(self) -> SafeString:
        """The attribute of a bar that fills it with the stripes that overview.html defines."""
        return mark_safe(' fill="url(#gw-stripes)"') if self.is_striped else SafeString()


def highest_bar(series: Sequence[Series]) -> float:
    stacks = zip(*(each.values for each in series), strict=True)
    return max((sum(value or 0.0 for value in stack) for stack in stacks), default=0.0)


def highest_point(series: Sequence[Series]) -> float:
    return max((value for each in series for value in each.values if value is not None), default=0.0)


def draw_bars(series: Sequence[Series], top: float) -> SafeString:
    """Draw stacked bars; the bar of the last period is outlined, because the period has not ended."""
    number = len(series[0].values)
    shapes: list[tuple[str, ...]] = []
    for index in range(number):
        below = 0.0
        for each in series:
            value = each.values[index] or 0.0
            if not value:
                continue
            height = max(value / top * 100, LEAST_HEIGHT)
            unfinished = " gw-unfinished" if index == number - 1 else ""
            left = (index + (1 - BAR_SHARE) / 2) / number * 100
            place = (left, 100 - below - height, BAR_SHARE / number * 100, height)
            shapes.append((each.css_class + unfinished, each.fill, *(f"{part:.2f}" for part in place)))
            below += height
    bars = format_html_join("", '<rect class="gw-bar {}"{} x="{}%" y="{}%" width="{}%" height="{}%"/>', shapes)
    return _image(bars)


def draw_lines(series: Sequence[Series], top: float) -> SafeString:
    """Draw lines, with gaps where a series has no value; the way to the last period is dotted."""
    number = len(series[0].values)
    shapes = [
        format_html('<path class="gw-line {}" d="{}"/>', f"{each.css_class}{extra}", path)
        for each in series
        for extra, path in _paths(each.values, top)
        if path
    ]
    inner = format_html(
        '<svg viewBox="0 0 {} 100" preserveAspectRatio="none" width="100%" height="100%">{}</svg>',
        number,
        _joined(shapes),
    )
    return _image(inner)


def sparkline(values: Sequence[float], label: str) -> SafeString:
    """Draw a small line without axes, for a cell of a table."""
    width, height = 100, 24
    top = max(values, default=0.0) or 1.0
    step = width / max(len(values) - 1, 1)
    points = " ".join(
        f"{index * step:.1f},{height - 2 - value / top * (height - 4):.1f}" for index, value in enumerate(values)
    )
    return format_html(
        '<svg class="gw-spark" viewBox="0 0 {} {}" role="img" aria-label="{}" preserveAspectRatio="none">'
        '<polyline points="{}"/></svg>',
        width,
        height,
        label,
        points,
    )


def _joined(shapes: Iterable[SafeString]) -> SafeString:
    return format_html_join("", "{}", ((shape,) for shape in shapes))


def _paths(values: Sequence[float | None], top: float) -> list[tuple[str, str]]:
    """Return the path through all periods that have ended, the path from there to the last period, and the points."""
    ended = _path(values[:-1], top, 0)
    points = _points(values, top)
    if values[-1] is None:
        return [("", ended), (" gw-point", points)]
    before = len(values) - 2
    last = _path([values[before] if before >= 0 else None, values[-1]], top, max(before, 0))
    return [("", ended), (" gw-unfinished", last), (" gw-point", points)]


def _points(values: Sequence[float | None], top: float) -> str:
    """Return a path of lines without a length, which round ends turn into points, for values without neighbours."""
    before, after = (None, *values[:-1]), (*values[1:], None)
    return "".join(
        f"M{index + 0.5:g} {100 - value / top * 100:.2f}h0"
        for index, (value, *neighbours) in enumerate(zip(values, before, after, strict=True))
        if value is not None and neighbours == [None, None]
    )


def _path(values: Sequence[float | None], top: float, first: int) -> str:
    """Return a path through the middle of each period. A value without neighbours is a short dash below its point."""
    parts: list[str] = []
    is_drawing = False
    for index, value in enumerate(values, first):
        if value is None:
            is_drawing = False
            continue
        x, y = index + 0.5, 100 - value / top * 100
        parts.append(f"L{x:g} {y:.2f}" if is_drawing else f"M{x - 0.3:g} {y:.2f}L{x:g} {y:.2f}")
        is_drawing = True
    return "".join(parts)


def _image(shapes: SafeString) -> SafeString:
    # The table below the chart has the figures, for readers that do not see the image.
    return format_html('<svg class="gw-chart" aria-hidden="true" focusable="false">{}{}</svg>', _grid(), shapes)


def _grid() -> SafeString:
    heights = [100 * part / (LEVELS - 1) for part in range(LEVELS)]
    shape = '<line class="gw-grid" x1="0" x2="100%" y1="{}%" y2="{}%"/>'
    return format_html_join("", shape, ((f"{height:g}", f"{height:g}") for height in heights))
