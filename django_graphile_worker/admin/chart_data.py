"""Statistics to series: what a chart shows for each stretch of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django_graphile_worker.sql.statistics import DAY, HOUR, MINUTE, TEN_MINUTES, Row, together

# Where the first bucket of a histogram ends; each of the following is half an octave.
FIRST_BOUND = 2.0**-11


@dataclass(frozen=True, slots=True)
class Span:
    """How far back a chart looks, and in which steps."""

    name: str
    period: int
    points: int
    # A coarser resolution will do for a figure of the whole, and has fewer rows to read.
    coarse_period: int

    def starts(self, now: datetime) -> list[int]:
        """When each stretch begins, oldest first; the last one is still going on."""
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


def by_time(rows: Iterable[Row], span: Span, now: datetime) -> list[Row]:
    """One row for each stretch, all tasks together; stretches in which nothing happened are there, too."""
    groups: dict[int, list[Row]] = {start: [] for start in span.starts(now)}
    for row in rows:
        if row.started_at in groups:
            groups[row.started_at].append(row)
    return [together(group, started_at=start, task_identifier="") for start, group in groups.items()]


def total(rows: Sequence[Row]) -> Row:
    return together(rows, started_at=0, task_identifier="")


def percentile(histogram: Sequence[int], share: float) -> float | None:
    """The value (in seconds) below which that share lies; None when there is nothing."""
    number = sum(histogram)
    if not number:
        return None
    wanted = share * number
    for bucket, count in enumerate(histogram):
        if count and wanted <= count:
            low, high = bounds(bucket)
            return low + (high - low) * (wanted / count)
        wanted -= count
    return bounds(len(histogram) - 1)[1]


def bounds(bucket: int) -> tuple[float, float]:
    """Where a bucket of a histogram begins and ends, in seconds."""
    return (FIRST_BOUND * 2 ** ((bucket - 1) / 2) if bucket else 0.0, FIRST_BOUND * 2 ** (bucket / 2))
