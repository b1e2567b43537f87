"""Translates the fields of a Celery crontab into a cron line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django_graphile_worker.crontab.errors import MistakeCollector, Position
from django_graphile_worker.crontab.patterns import (
    DATE,
    FIELDS,
    HOUR,
    MINUTE,
    MONTH,
    MONTH_NAMES,
    WEEKDAY,
    WEEKDAY_NAMES,
    Field,
    read_field,
    write_field,
)
from django_graphile_worker.importing.celery_beat.unsupported import Unsupported

COLUMNS = {
    "minute": MINUTE,
    "hour": HOUR,
    "day_of_month": DATE,
    "month_of_year": MONTH,
    "day_of_week": WEEKDAY,
}
_PART = re.compile(r"(?:(?P<wildcard>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?")
_NAMES = {name: number for number, name in enumerate(MONTH_NAMES, 1)} | {
    name: number for number, name in enumerate(WEEKDAY_NAMES)
}


def cron_line(row: Mapping[str, Any]) -> str:
    """Return the cron line of a row of ``CrontabSchedule``; raise Unsupported if there is none that means the same."""
    texts = {column: str(row[column]).replace(" ", "") for column in COLUMNS}
    values = {column: _values(column, texts[column], kind) for column, kind in COLUMNS.items()}
    if values["day_of_month"] != DATE.all_values and values["day_of_week"] != WEEKDAY.all_values:
        raise Unsupported(
            f"it fires on days that match both day_of_month {texts['day_of_month']!r} and day_of_week "
            f"{texts['day_of_week']!r}, and a cron line fires on days that match either: use a CronItem with a function"
        )
    fields = zip(COLUMNS, FIELDS, strict=True)
    return " ".join(_written(kind, texts[column], values[column]) for column, kind in fields)


def _written(kind: Field, text: str, values: tuple[int, ...]) -> str:
    """Return the text itself if it means the same in a cron line, else the values."""
    collector = MistakeCollector()
    same = read_field(kind, text, collector, Position()) == values and not len(collector)
    return text if same else write_field(kind, values)


def _values(column: str, text: str, kind: Field) -> tuple[int, ...]:
    """Return the values of a field by the grammar of Celery, which also has ranges that wrap, like ``fri-mon``."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None or match["step"] == "0":
            raise Unsupported(f"Celery cannot read {column} {text!r}, so beat never fires it")
        found.update(_part_values(column, match, kind))
    return tuple(sorted(found))


def _part_values(column: str, match: re.Match[str], kind: Field) -> list[int]:
    values = list(kind.all_values)
    if not match["wildcard"]:
        first = _number(column, match["first"], kind)
        last = first if match["last"] is None else _number(column, match["last"], kind)
        wraps = last < first
        values = [value for value in values if (value >= first or value <= last if wraps else first <= value <= last)]
        # A range that wraps counts its steps from its start.
        values = sorted(values, key=lambda value: (value < first, value)) if wraps else values
    return values[:: int(match["step"] or 1)]


def _number(column: str, text: str, kind: Field) -> int:
    number = int(text) if text.isdigit() else _NAMES.get(text[:3].upper())
    if number is None or not kind.smallest <= number <= kind.largest:
        raise Unsupported(f"Celery knows no {column} {text!r}, so beat never fires it")
    return number
