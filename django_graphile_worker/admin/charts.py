"""Charts as SVG, drawn by the server: no script, no style attribute, colours by class."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from django_graphile_worker.admin.formatting import NOTHING

WIDTH, HEIGHT = 640, 170
# On the left there is room for "16 min 40 s". On a narrow screen the style sheet moves these labels into the drawing.
LEFT, RIGHT, TOP, BOTTOM = 66, 8, 10, 22
GRID_LINES = 3


class Series(NamedTuple):
    """A name, a class for the colour, and a value for each stretch of time (None: nothing to show)."""

    name: str
    css_class: str
    values: Sequence[float | None]


class Chart(NamedTuple):
    """A drawing, and the names of what is in it."""

    title: str
    summary: str
    svg: SafeString
    series: Sequence[Series]


def bars(
    title: str, summary: str, labels: Sequence[str], series: Sequence[Series], write: Callable[[float], str]
) -> Chart:
    """Stacked bars."""
    heights = [sum(values) for values in zip(*(_numbers(each) for each in series), strict=True)]
    top = _round_up(max(heights, default=0.0))
    step = _step(len(labels))
    shapes: list[SafeString] = []
    for place, label in enumerate(labels):
        told = "\n".join(f"{each.name}: {write(each.values[place] or 0)}" for each in series)
        stack = _stack(series, place, top, step)
        shapes.append(format_html("<g>{}{}</g>", _target(place, step, f"{label}\n{told}"), stack))
    return Chart(
        title, summary, _frame(title, summary, labels, top, write, format_html_join("", "{}", _each(shapes))), series
    )


def lines(
    title: str, summary: str, labels: Sequence[str], series: Sequence[Series], write: Callable[[float], str]
) -> Chart:
    """Lines, with gaps where nothing happened."""
    top = _round_up(max((value for each in series for value in _numbers(each)), default=0.0))
    step = _step(len(labels))
    drawn = [
        format_html('<path class="gw-line {}" d="{}"/>', each.css_class, _path(each.values, top, step))
        for each in series
    ]
    targets = [
        _target(
            place, step, "\n".join([label, *(f"{each.name}: {_told(each.values[place], write)}" for each in series)])
        )
        for place, label in enumerate(labels)
    ]
    shapes = format_html_join("", "{}", _each([*drawn, *targets]))
    return Chart(title, summary, _frame(title, summary, labels, top, write, shapes), series)


def sparkline(values: Sequence[float], label: str) -> SafeString:
    """A line the size of a word."""
    width, height = 100, 24
    top = max(values, default=0.0) or 1.0
    step = width / max(len(values) - 1, 1)
    points = " ".join(
        f"{place * step:.1f},{height - 2 - value / top * (height - 4):.1f}" for place, value in enumerate(values)
    )
    return format_html(
        '<svg class="gw-spark" viewBox="0 0 {} {}" role="img" aria-label="{}" preserveAspectRatio="none">'
        '<polyline points="{}"/></svg>',
        width,
        height,
        label,
        points,
    )


def _each(shapes: Sequence[SafeString]) -> list[tuple[SafeString]]:
    return [(shape,) for shape in shapes]


def _numbers(series: Series) -> list[float]:
    return [value or 0.0 for value in series.values]


def _told(value: float | None, write: Callable[[float], str]) -> str:
    return NOTHING if value is None else write(value)


def _step(count: int) -> float:
    return (WIDTH - LEFT - RIGHT) / max(count, 1)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)


def _round_up(value: float) -> float:
    """The next number that is easy to read, as is its half: 1, 2, 4, 6 or 8 and zeros."""
    if value <= 0:
        return 1.0
    magnitude = 10.0 ** math.floor(math.log10(value))
    return next(factor * magnitude for factor in (1, 2, 4, 6, 8, 10) if value <= factor * magnitude * 1.0001)


def _stack(series: Sequence[Series], place: int, top: float, step: float) -> SafeString:
    shapes: list[tuple[str, ...]] = []
    below = 0.0
    for each in series:
        value = each.values[place] or 0.0
        if value:
            y = _y(below + value, top)
            height = max(_y(below, top) - y, 0.8)
            gap = min(1.0, step * 0.15)
            x = LEFT + place * step + gap / 2
            shapes.append((each.css_class, f"{x:.1f}", f"{y:.1f}", f"{step - gap:.1f}", f"{height:.1f}"))
            below += value
    return format_html_join("", '<rect class="gw-bar {}" x="{}" y="{}" width="{}" height="{}"/>', shapes)


def _target(place: int, step: float, told: str) -> SafeString:
    """What the mouse finds: the whole height of a stretch of time, with its figures."""
    return format_html(
        '<rect class="gw-target" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
        f"{LEFT + place * step:.1f}",
        str(TOP),
        f"{step:.1f}",
        str(HEIGHT - TOP - BOTTOM),
        told,
    )


def _path(values: Sequence[float | None], top: float, step: float) -> str:
    """A line through the middle of each stretch; a lonely point is a short dash."""
    parts: list[str] = []
    is_drawing = False
    for place, value in enumerate(values):
        if value is None:
            is_drawing = False
            continue
        x, y = LEFT + (place + 0.5) * step, _y(value, top)
        parts.append(f"L{x:.1f} {y:.1f}" if is_drawing else f"M{x - step * 0.3:.1f} {y:.1f}L{x:.1f} {y:.1f}")
        is_drawing = True
    return "".join(parts) or "M0 0"


def _frame(
    title: str, summary: str, labels: Sequence[str], top: float, write: Callable[[float], str], shapes: SafeString
) -> SafeString:
    return format_html(
        '<svg class="gw-chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}{}</svg>',
        WIDTH,
        HEIGHT,
        f"{title}. {summary}",
        _grid(top),
        shapes,
        _value_axis(top, write),
        _time_axis(labels),
    )


def _levels(top: float) -> list[float]:
    return [top * part / (GRID_LINES - 1) for part in range(GRID_LINES)]


def _grid(top: float) -> SafeString:
    heights = [f"{_y(level, top):.1f}" for level in _levels(top)]
    shape = '<line class="gw-grid" x1="{}" x2="{}" y1="{}" y2="{}"/>'
    return format_html_join("", shape, ((str(LEFT), str(WIDTH - RIGHT), height, height) for height in heights))


def _value_axis(top: float, write: Callable[[float], str]) -> SafeString:
    shape = '<text class="gw-axis gw-axis-value{}" x="{}" y="{}" text-anchor="end">{}</text>'
    labels = (
        ("" if level else " gw-axis-zero", str(LEFT - 6), f"{_y(level, top) + 3.5:.1f}", write(level))
        for level in _levels(top)
    )
    return format_html_join("", shape, labels)


def _time_axis(labels: Sequence[str]) -> SafeString:
    step = _step(len(labels))
    places = [round(len(labels) * part / 6) for part in range(6)] if len(labels) >= 6 else range(len(labels))
    shown = [place for place in places if place]
    shape = '<text class="gw-axis{}" x="{}" y="{}" text-anchor="middle">{}</text>'
    # A narrow screen has room for every other label.
    texts = (
        (" gw-axis-spare" if number % 2 else "", f"{LEFT + (place + 0.5) * step:.1f}", str(HEIGHT - 6), labels[place])
        for number, place in enumerate(shown)
    )
    return format_html_join("", shape, texts)
