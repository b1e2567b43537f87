"""Renders charts as SVG on the server. They need no script and no style attribute: colours are CSS classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from django_graphile_worker.admin.charts.chart_axes import HEIGHT, WIDTH, Scale, grid, time_axis, value_axis
from django_graphile_worker.admin.formatting import EMPTY_VALUE

Format = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Series:
    """A name, a CSS class for the colour, and a value for each period (None: no value)."""

    name: str
    css_class: str
    values: Sequence[float | None]

    @property
    def numbers(self) -> list[float]:
        return [value or 0.0 for value in self.values]


@dataclass(frozen=True, slots=True)
class Chart:
    """An SVG image, with its title, its summary and its legend."""

    title: str
    summary: str
    svg: SafeString
    series: Sequence[Series]


def bar_chart(title: str, summary: str, labels: Sequence[str], series: Sequence[Series], format_value: Format) -> Chart:
    """Draw stacked bars."""
    heights = [sum(values) for values in zip(*(each.numbers for each in series), strict=True)]
    scale = Scale.fitting(heights, len(labels))
    shapes: list[SafeString] = []
    for index, label in enumerate(labels):
        figures = [f"{each.name}: {format_value(each.values[index] or 0)}" for each in series]
        tooltip = _tooltip_area(scale, index, [label, *figures])
        shapes.append(format_html("<g>{}{}</g>", tooltip, _stacked_bar(series, index, scale)))
    svg = _image(title, summary, labels, scale, format_value, _joined(shapes))
    return Chart(title, summary, svg, series)


def line_chart(
    title: str, summary: str, labels: Sequence[str], series: Sequence[Series], format_value: Format
) -> Chart:
    """Draw lines, with gaps where a series has no value."""
    scale = Scale.fitting([number for each in series for number in each.numbers], len(labels))
    shapes = [
        format_html('<path class="gw-line {}" d="{}"/>', each.css_class, _path(each.values, scale)) for each in series
    ]
    for index, label in enumerate(labels):
        figures = [f"{each.name}: {_value_text(each.values[index], format_value)}" for each in series]
        shapes.append(_tooltip_area(scale, index, [label, *figures]))
    svg = _image(title, summary, labels, scale, format_value, _joined(shapes))
    return Chart(title, summary, svg, series)


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


def _value_text(value: float | None, format_value: Format) -> str:
    return EMPTY_VALUE if value is None else format_value(value)


def _stacked_bar(series: Sequence[Series], index: int, scale: Scale) -> SafeString:
    shapes: list[tuple[str, ...]] = []
    gap = min(1.0, scale.step * 0.15)
    below = 0.0
    for each in series:
        value = each.values[index] or 0.0
        if value:
            y = scale.y(below + value)
            height = max(scale.y(below) - y, 0.8)
            x = scale.x(index) + gap / 2
            shapes.append((each.css_class, f"{x:.1f}", f"{y:.1f}", f"{scale.step - gap:.1f}", f"{height:.1f}"))
            below += value
    return format_html_join("", '<rect class="gw-bar {}" x="{}" y="{}" width="{}" height="{}"/>', shapes)


def _tooltip_area(scale: Scale, index: int, lines: Sequence[str]) -> SafeString:
    """Draw an invisible rectangle over the whole height of a period, whose tooltip has the figures."""
    left, top, width, height = scale.column(index)
    return format_html(
        '<rect class="gw-tooltip-area" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
        f"{left:.1f}",
        str(top),
        f"{width:.1f}",
        str(height),
        "\n".join(lines),
    )


def _path(values: Sequence[float | None], scale: Scale) -> str:
    """Return a path through the middle of each period; a value without neighbours becomes a short dash."""
    parts: list[str] = []
    is_drawing = False
    for index, value in enumerate(values):
        if value is None:
            is_drawing = False
            continue
        x, y = scale.x(index + 0.5), scale.y(value)
        parts.append(f"L{x:.1f} {y:.1f}" if is_drawing else f"M{x - scale.step * 0.3:.1f} {y:.1f}L{x:.1f} {y:.1f}")
        is_drawing = True
    return "".join(parts) or "M0 0"


def _image(
    title: str, summary: str, labels: Sequence[str], scale: Scale, format_value: Format, shapes: SafeString
) -> SafeString:
    return format_html(
        '<svg class="gw-chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}{}</svg>',
        WIDTH,
        HEIGHT,
        f"{title}. {summary}",
        grid(scale),
        shapes,
        value_axis(scale, format_value),
        time_axis(scale, labels),
    )
