"""The axes of a chart: the numbers of the value axis, and the labels of the time axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.utils import formats, timezone
from django.utils.translation import gettext as _

from django_graphile_worker.admin.charts.chart_data import Span

# The value axis has this many labels: the end, the middle and zero.
LEVELS = 3
MINUTE = 60


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
