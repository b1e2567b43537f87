"""A chart, as the template shows it: title, unit, legend, image, axes and the table of its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.utils import formats
from django.utils.safestring import SafeString

from django_graphile_worker.admin.charts import drawing
from django_graphile_worker.admin.charts.chart_axes import Period, levels, round_up
from django_graphile_worker.admin.charts.drawing import Series
from django_graphile_worker.admin.formatting import EMPTY_VALUE

Format = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of some series over the periods of a time span."""

    # Stays the same from one refresh to the next: the script finds the chart again by this name.
    name: str
    title: str
    # The figures of the whole span.
    summary: str
    # What a value is, and how long a period is.
    unit: str
    series: Sequence[Series]
    periods: Sequence[Period]
    image: SafeString
    value_labels: Sequence[str]
    # The label of each period, and its value of each series.
    table: Sequence[tuple[str, Sequence[str]]]
    is_stacked: bool = False


def make_chart(
    name: str,
    title: str,
    *,
    summary: str,
    unit: str,
    series: Sequence[Series],
    periods: Sequence[Period],
    format_value: Format,
    is_stacked: bool = False,
) -> Chart:
    """Draw a chart of stacked bars or of lines."""
    highest = drawing.highest_bar(series) if is_stacked else drawing.highest_point(series)
    top = round_up(highest)
    image = drawing.draw_bars(series, top) if is_stacked else drawing.draw_lines(series, top)
    table = [
        (period.full_label, [_text(each.values[index], format_value) for each in series])
        for index, period in enumerate(periods)
    ]
    labels = [format_value(level) if _is_readable(level, format_value) else "" for level in levels(top)]
    return Chart(name, title, summary, unit, series, periods, image, labels, table, is_stacked)


def whole_number(value: float) -> str:
    """Return a number of jobs, with the separators of the user's language."""
    return formats.number_format(round(value), decimal_pos=0, force_grouping=True)


def rate(value: float) -> str:
    """Return a number of jobs per second: with as many decimals as a small number needs."""
    decimals = 0 if value >= 100 or value == round(value) else 1 if value >= 10 else 2
    return formats.number_format(value, decimal_pos=decimals, force_grouping=True)


def _is_readable(level: float, format_value: Format) -> bool:
    """Return False for a fraction that the format would round: the middle of an axis that ends at 1."""
    return format_value is not whole_number or level == int(level)


def _text(value: float | None, format_value: Format) -> str:
    return EMPTY_VALUE if value is None else format_value(value)
