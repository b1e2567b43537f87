"""The five time fields of a pattern: their ranges, their names, how to read and write one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from django_graphile_worker.crontab.errors import Notebook, Position

MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

_PART = re.compile(
    r"(?P<wildcard>\*)(?:/(?P<wildcard_step>[0-9]+))?"
    r"|(?P<first>[0-9]+|[A-Za-z]{3})(?:-(?P<last>[0-9]+|[A-Za-z]{3})(?:/(?P<step>[0-9]+))?)?"
)
# Longer numbers are too large for every field, and int() refuses very long ones.
_MOST_DIGITS = 9
# What fields without mistakes stand for, by the field's name and text: crontabs repeat the same few.
_read_before: dict[tuple[str, str], tuple[int, ...]] = {}
_MOST_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Field:
    """One time field: what it is called, and which values it may have."""

    name: str
    smallest: int
    largest: int
    names: Mapping[str, int] = field(default_factory=dict, hash=False)
    # Cron counts Sunday as 0 and as 7.
    alias: Mapping[int, int] = field(default_factory=dict, hash=False)

    @property
    def all_values(self) -> tuple[int, ...]:
        return tuple(range(self.smallest, self.largest + 1))

    @property
    def described(self) -> str:
        """The field in words, for messages."""
        range_in_words = f"{self.name} from {self.smallest} to {self.largest}"
        if not self.names:
            return range_in_words
        spelled = list(self.names)
        return f"{range_in_words} or {spelled[0]} to {spelled[-1]}"


MINUTE = Field("a minute", 0, 59)
HOUR = Field("an hour", 0, 23)
DATE = Field("a day of the month", 1, 31)
MONTH = Field("a month", 1, 12, {name: number for number, name in enumerate(MONTH_NAMES, 1)})
WEEKDAY = Field("a day of the week", 0, 6, {name: number for number, name in enumerate(WEEKDAY_NAMES)}, {7: 0})
FIELDS = (MINUTE, HOUR, DATE, MONTH, WEEKDAY)


def read_field(kind: Field, text: str, notebook: Notebook, at: Position) -> tuple[int, ...]:
    """The sorted values that one field stands for; mistakes go to the notebook."""
    known = _read_before.get((kind.name, text))
    if known is not None:
        return known
    before = len(notebook)
    found = _read_parts(kind, text, notebook, at)
    if len(notebook) == before and len(_read_before) < _MOST_REMEMBERED:
        _read_before[kind.name, text] = found
    return found


def _read_parts(kind: Field, text: str, notebook: Notebook, at: Position) -> tuple[int, ...]:
    values: set[int] = set()
    offset = 0
    for part in text.split(","):
        values.update(_read_part(kind, part, notebook, at.shifted(offset)))
        offset += len(part) + 1
    return tuple(sorted({kind.alias.get(value, value) for value in values}))


def _read_part(kind: Field, part: str, notebook: Notebook, at: Position) -> Iterator[int]:
    match = _PART.fullmatch(part)
    if match is None:
        notebook.note(f"{kind.described}, a range like {_example(kind)}, '*' or '*/n'", part, at)
        return iter(())
    if match["wildcard"]:
        step = _step(match, "wildcard_step", notebook, at)
        return iter(range(kind.smallest, kind.largest + 1, step))
    return iter(_read_range(kind, match, notebook, at))


def _read_range(kind: Field, match: re.Match[str], notebook: Notebook, at: Position) -> range:
    first = _value(kind, match, "first", notebook, at)
    if match["last"] is None:
        return range(0) if first is None else range(first, first + 1)
    last = _value(kind, match, "last", notebook, at)
    step = _step(match, "step", notebook, at)
    if first is None or last is None:
        return range(0)
    if last == 0 and first > 0 and match["last"].upper() in kind.names:
        last = 7  # SAT-SUN: a week may also end on Sunday
    if last <= first:
        text = f"{match['first']}-{match['last']}"
        notebook.note(f"a range whose end is larger than its start, like {_example(kind)}", text, at)
        return range(0)
    return range(first, last + 1, step)


def _value(kind: Field, match: re.Match[str], group: str, notebook: Notebook, at: Position) -> int | None:
    text = match[group]
    value = kind.names.get(text.upper())
    if value is None and text.isdigit() and len(text) <= _MOST_DIGITS:
        value = int(text)
    largest = max(kind.largest, *kind.alias) if kind.alias else kind.largest
    if value is None or not kind.smallest <= value <= largest:
        notebook.note(kind.described, text, at.shifted(match.start(group)))
        return None
    return value


def _step(match: re.Match[str], group: str, notebook: Notebook, at: Position) -> int:
    text = match[group]
    if text is None:
        return 1
    step = int(text[:_MOST_DIGITS])
    if step == 0:
        notebook.note("a step greater than zero", text, at.shifted(match.start(group)))
        return 1
    return step


def _example(kind: Field) -> str:
    return f"{kind.smallest + 1}-{kind.smallest + 5}"


def write_field(kind: Field, values: tuple[int, ...]) -> str:
    """The shortest plain text for sorted values: ``*``, numbers and ranges."""
    if values == kind.all_values:
        return "*"
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in stretches(values))


def stretches(values: tuple[int, ...]) -> list[tuple[int, int]]:
    """Sorted values as (first, last) pairs of unbroken runs."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][1] == value - 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs
