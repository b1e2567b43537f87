"""The charts: points from statistics, axes, the image, and the table of figures.

A chart is HTML: its axes are text, the image in the middle is SVG without text, and a table has the same figures. The
image has no script, no style attribute and no coordinates of its own: bars have percentages, so that a chart of any
width has lines of the same thickness. Paths cannot have percentages, so each is in an inner image that is stretched.
Colours are CSS classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.utils import formats, timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.formatting import EMPTY_VALUE
from django_graphile_worker.sql.statistics import ALL, DAY, HOUR, MINUTE, TEN_MINUTES, Row, summed

# The end of the first bucket of a histogram, in seconds; each following bucket spans half an octave.
FIRST_BOUND = 2.0**-11


@dataclass(frozen=True, slots=True)
class Span:
    """The time that a chart covers, as a number of periods and the length of a period in seconds."""

    name: str
    period: int
    points: int
    # Figures of the whole span are read from the statistics of this longer period, which have fewer rows.
    coarse_period: int

    def starts(self, now: datetime) -> list[int]:
        """Return when each period begins, oldest first; the last period has not ended yet."""
        last = int(now.timestamp()) // self.period * self.period
        return [last - self.period * back for back in range(self.points - 1, -1, -1)]

    def since(self, now: datetime) -> datetime:
        return datetime.fromtimestamp(self.starts(now)[0], UTC)

    def coarse_since(self, now: datetime) -> datetime:
        first = self.starts(now)[0]
        return datetime.fromtimestamp(first - first % self.coarse_period, UTC)


SPANS = {
    "hour": Span("hour", MINUTE, 60, TEN_MINUTES),
    "day": Span("day", TEN_MINUTES, 144, HOUR),
    "week": Span("week", HOUR, 168, DAY),
}


def rows_by_period(rows: Iterable[Row], starts: Sequence[int], unknown: Collection[int] = ()) -> list[Row | None]:
    """Return one row for each period, with the sums of all rows of the period.

    A period without rows had no jobs, so its row has zeros; if its start is in ``unknown``, it has None.
    """
    groups: dict[int, list[Row]] = {start: [] for start in starts}
    for row in rows:
        if row.started_at in groups:
            groups[row.started_at].append(row)
    return [None if start in unknown and not group else _together(group, start) for start, group in groups.items()]


def total(rows: Iterable[Row | None]) -> Row:
    return _together([row for row in rows if row is not None])


def _together(rows: Sequence[Row], started_at: int = 0) -> Row:
    return Row(ALL, "", started_at, summed(row.counts for row in rows))


def percentile(histogram: Sequence[int], share: float) -> float | None:
    """Return the value in seconds below which a share of the histogram lies; None for an empty histogram."""
    number = sum(histogram)
    if not number:
        return None
    wanted = share * number
    for bucket, count in enumerate(histogram):
        if count and wanted <= count:
            low, high = bucket_bounds(bucket)
            return low + (high - low) * (wanted / count)
        wanted -= count
    return bucket_bounds(len(histogram) - 1)[1]


def bucket_bounds(bucket: int) -> tuple[float, float]:
    """Return where a bucket of a histogram begins and ends, in seconds."""
    return (FIRST_BOUND * 2 ** ((bucket - 1) / 2) if bucket else 0.0, FIRST_BOUND * 2 ** (bucket / 2))


# The value axis has this many labels: the end, the middle and zero.
LEVELS = 3


def round_up(value: float) -> float:
    """Return the next number whose half is easy to read, too: 1, 2, 4, 6 or 8, followed by zeros."""
    if value <= 0:
        return 1.0
    magnitude = 10.0 ** math.floor(math.log10(value))
    return next(factor * magnitude for factor in (1, 2, 4, 6, 8, 10) if value <= factor * magnitude * 1.0001)


def levels(top: float) -> list[float]:
    """Return the values that have a label and a grid line, the highest first."""
    return [top * part / (LEVELS - 1) for part in range(LEVELS - 1, -1, -1)]


@dataclass(frozen=True, slots=True)
class Period:
    """A period of the time axis: its name in tables, and its label on the axis, if it has one."""

    label: str
    tick: str
    # On a narrow screen there is room for every other label.
    is_wide_only: bool
    is_unfinished: bool

    @property
    def full_label(self) -> str:
        return _("%(time)s (so far)") % {"time": self.label} if self.is_unfinished else self.label


def periods(starts: Sequence[int], span: Span) -> list[Period]:
    """Return the periods that begin at these times; the last period has not ended yet."""
    last = len(starts) - 1
    found: list[Period] = []
    # Of the labels, every other one is for wide screens only.
    is_next_narrow = True
    for index, start in enumerate(starts):
        local = timezone.localtime(datetime.fromtimestamp(start, UTC))
        to_end = min(index, last - index)
        # A label at an end of the axis would not fit; on a narrow screen, it needs a larger part of the axis.
        has_tick = _has_tick(local, span) and to_end >= len(starts) // 24
        fits_narrow = has_tick and to_end >= len(starts) // 12
        is_wide_only = has_tick and not (fits_narrow and is_next_narrow)
        is_next_narrow ^= fits_narrow
        tick = _tick(local, span) if has_tick else ""
        found.append(Period(_label(local, span), tick, is_wide_only, index == last))
    return found


def _has_tick(local: datetime, span: Span) -> bool:
    if span.name == "hour":
        return local.minute % 10 == 0
    return local.minute < span.period // MINUTE and local.hour % (4 if span.name == "day" else 24) == 0


def _tick(local: datetime, span: Span) -> str:
    return formats.date_format(local, "j M" if span.name == "week" else "H:i")


def _label(local: datetime, span: Span) -> str:
    """Return the name of a period: with its date, unless all periods are of one hour."""
    return formats.date_format(local, "H:i" if span.name == "hour" else "D j M H:i")


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
        """The attribute of a bar that fills it with the stripes that _charts.html defines."""
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
    highest = highest_bar(series) if is_stacked else highest_point(series)
    top = round_up(highest)
    image = draw_bars(series, top) if is_stacked else draw_lines(series, top)
    table = [
        (period.full_label, [_text(each.values[index], format_value) for each in series])
        for index, period in enumerate(periods)
    ]
    labels = [format_value(level) if _is_readable(level, format_value) else "" for level in levels(top)]
    return Chart(name, title, summary, unit, series, periods, image, labels, table, is_stacked)


# The looks of the series of a project, in order: those of bars, and those of lines.
BAR_CLASSES = ("gw-succeeded", "gw-retrying", "gw-expired")
LINE_CLASSES = ("gw-p50", "gw-p95", "gw-running-jobs")


@dataclass(frozen=True, slots=True)
class ChartPeriods:
    """The periods of the charts of a page, with which a project draws charts of its own."""

    span: Span
    now: datetime

    @property
    def since(self) -> datetime:
        """When the first period begins."""
        return self.span.since(self.now)

    def sums(self, values: Iterable[tuple[datetime, float]]) -> list[float]:
        """Return the sum of the values of each period, by their times."""
        found = dict.fromkeys(self.span.starts(self.now), 0.0)
        for moment, value in values:
            start = int(moment.timestamp()) // self.span.period * self.span.period
            if start in found:
                found[start] += float(value)
        return list(found.values())

    def counts(self, moments: Iterable[datetime]) -> list[float]:
        """Return how many of the times are in each period."""
        return self.sums((moment, 1) for moment in moments)

    def chart(
        self,
        name: str,
        title: str,
        series: Mapping[str, Sequence[float | None]],
        *,
        unit: str = "",
        summary: str = "",
        format_value: Format | None = None,
        is_stacked: bool = True,
    ) -> Chart:
        """Return a chart of stacked bars, or of lines, with up to three series of a value for each period."""
        classes = BAR_CLASSES if is_stacked else LINE_CLASSES
        if len(series) > len(classes):
            raise ValueError(f"A chart has at most {len(classes)} series, got {len(series)}.")
        return make_chart(
            name,
            title,
            summary=summary,
            unit=unit,
            series=[
                Series(label, css_class, values)
                for (label, values), css_class in zip(series.items(), classes, strict=False)
            ],
            periods=periods(self.span.starts(self.now), self.span),
            format_value=format_value or formatting.number,
            is_stacked=is_stacked,
        )


def rate(value: float) -> str:
    """Return a number of jobs per second: with as many decimals as a small number needs."""
    decimals = 0 if value >= 100 or value == round(value) else 1 if value >= 10 else 2
    return formats.number_format(value, decimal_pos=decimals, force_grouping=True)


def _is_readable(level: float, format_value: Format) -> bool:
    """Return False for a fraction that the format would round: the middle of an axis that ends at 1."""
    return format_value is not formatting.number or level == int(level)


def _text(value: float | None, format_value: Format) -> str:
    return EMPTY_VALUE if value is None else format_value(value)
