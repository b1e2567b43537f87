"""Turns statistics into the series of a chart, with one point for each period of a time span."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

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
