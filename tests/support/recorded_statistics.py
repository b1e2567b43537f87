"""Statistics written at once, as a worker writes them step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django_graphile_worker.sql import statistics
from django_graphile_worker.sql.statistics import DURATIONS, PLACES, TASK, WAITS, Row

WORKER_ID = "django-worker-tests"


def make_row(
    name: str,
    started_at: float,
    *,
    kind: str = TASK,
    durations: Mapping[int, int] | None = None,
    waits: Mapping[int, int] | None = None,
    **numbers: int,
) -> Row:
    """Return counts of the minute; histograms are given as the numbers of their buckets, the rest by name."""
    counts = [0] * PLACES
    for what, number in numbers.items():
        counts[getattr(statistics, what.upper())] = number
    for first, histogram in ((DURATIONS, durations), (WAITS, waits)):
        for bucket, number in (histogram or {}).items():
            counts[first + bucket] = number
    return Row(kind, name, int(started_at) // 60 * 60, counts)


def append_and_fold(cursor: Any, rows: Sequence[Row], *, schema: str, worker_id: str = WORKER_ID) -> None:
    """Append the counts of a worker, and add everything appended to the statistics."""
    statistics.append(cursor, rows, worker_id=worker_id, schema=schema)
    while statistics.fold(cursor, schema=schema):
        continue
