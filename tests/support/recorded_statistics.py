"""Statistics written at once, as a worker writes them step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_graphile_worker.sql.statistics import statistics
from django_graphile_worker.sql.statistics.statistics import Row


def append_and_fold(cursor: Any, rows: Sequence[Row], *, schema: str) -> None:
    """Append the counts, and add everything appended to the statistics."""
    statistics.append(cursor, rows, schema=schema)
    while statistics.fold(cursor, schema=schema):
        continue
