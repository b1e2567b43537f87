"""The scale, the grid and the axes of a chart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.utils.html import format_html_join
from django.utils.safestring import SafeString

WIDTH, HEIGHT = 640, 170
# The left margin has room for "16 min 40 s". On a narrow screen the style sheet moves these labels into the image.
LEFT, RIGHT, TOP, BOTTOM = 66, 8, 10, 22
GRID_LINES = 3


@dataclass(frozen=True, slots=True)
class Scale:
    """The mapping of periods and values to coordinates of the image."""

    # The value at the upper end of the value axis.
    top: float
    # The width of a period.
    step: float

    @classmethod
    def fitting(cls, values: Sequence[float], periods: int) -> Scale:
        """Return a scale that has room for these values and this number of periods."""
        return cls(round_up(max(values, default=0.0)), (WIDTH - LEFT - RIGHT) / max(periods, 1))

    def x(self, index: float) -> float:
        return LEFT + index * self.step

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM)

    def column(self, index: int) -> tuple[float, int, float, int]:
        """Return x, y, width and height of the area of a period."""
        return self.x(index), TOP, self.step, HEIGHT - TOP - BOTTOM

    @property
    def levels(self) -> list[float]:
        """The values that have a grid line."""
        return [self.top * part / (GRID_LINES - 1) for part in range(GRID_LINES)]


def round_up(value: float) -> float:
    """Return the next number whose half is easy to read, too: 1, 2, 4, 6 or 8, followed by zeros."""
    if value <= 0:
        return 1.0
    magnitude = 10.0 ** math.floor(math.log10(value))
    return next(factor * magnitude for factor in (1, 2, 4, 6, 8, 10) if value <= factor * magnitude * 1.0001)


def grid(scale: Scale) -> SafeString:
    heights = [f"{scale.y(level):.1f}" for level in scale.levels]
    shape = '<line class="gw-grid" x1="{}" x2="{}" y1="{}" y2="{}"/>'
    return format_html_join("", shape, ((str(LEFT), str(WIDTH - RIGHT), height, height) for height in heights))


def value_axis(scale: Scale, format_value: Callable[[float], str]) -> SafeString:
    shape = '<text class="gw-axis gw-axis-value{}" x="{}" y="{}" text-anchor="end">{}</text>'
    labels = (
        ("" if level else " gw-axis-zero", str(LEFT - 6), f"{scale.y(level) + 3.5:.1f}", format_value(level))
        for level in scale.levels
    )
    return format_html_join("", shape, labels)


def time_axis(scale: Scale, labels: Sequence[str]) -> SafeString:
    indexes = [round(len(labels) * part / 6) for part in range(6)] if len(labels) >= 6 else range(len(labels))
    shown = [index for index in indexes if index]
    shape = '<text class="gw-axis{}" x="{}" y="{}" text-anchor="middle">{}</text>'
    # A narrow screen has room for every other label.
    texts = (
        (" gw-axis-wide-only" if number % 2 else "", f"{scale.x(index + 0.5):.1f}", str(HEIGHT - 6), labels[index])
        for number, index in enumerate(shown)
    )
    return format_html_join("", shape, texts)
