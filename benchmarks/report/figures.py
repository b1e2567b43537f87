"""Looks figures up in the recorded results, and rounds them for readers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.results import Measured, Row

# A figure is known to about this many digits.
DIGITS = 3


@dataclass(frozen=True, slots=True)
class Place:
    """Where a figure is recorded: benchmark, table, row, metric."""

    measure: str
    table: str
    row: str
    metric: str


class Figures:
    """The recorded results, by place. What was not measured is None."""

    def __init__(self, measured: dict[str, Measured]) -> None:
        self.measured = measured

    def rows(self, measure: str, table: str) -> list[Row]:
        found = self.measured.get(measure)
        tables = found.tables if found else []
        return next((each.rows for each in tables if each.key == table), [])

    def row(self, measure: str, table: str, row: str) -> Row | None:
        return next((each for each in self.rows(measure, table) if each.key == row), None)

    def get(self, place: Place) -> float | None:
        row = self.row(place.measure, place.table, place.row)
        return row.median(place.metric) if row and row.samples.get(place.metric) else None

    def preliminary(self, *measures: str) -> list[str]:
        """Return why the figures of some benchmarks are preliminary, each reason once and the first of its kind."""
        found = [self.measured[name].preliminary for name in measures if name in self.measured]
        return list(dict.fromkeys(_kind(reason) for reasons in found for reason in reasons))


def _kind(reason: str) -> str:
    """Return a reason without its figures."""
    if reason.startswith("the load average"):
        return "the load average was above 0.5"
    return "other programs ran" if reason.startswith("other programs") else reason


def rounded(value: float, digits: int = DIGITS) -> str:
    """Return a number with as many digits as are known: 43,912 as 43,900, and 1.2749 as 1.27."""
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if places <= 0:
        return f"{round(value, places):,.0f}"
    text = f"{round(value, places):,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
