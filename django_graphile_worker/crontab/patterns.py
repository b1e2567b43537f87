"""``Pattern``: the values of the five time fields that determine when an item is due, and how they are written."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django_graphile_worker.crontab.errors import MistakeCollector, Position, raise_for

MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

_PART = re.compile(
    r"(?P<wildcard>\*)(?:/(?P<wildcard_step>[0-9]+))?"
    r"|(?P<first>[0-9]+|[A-Za-z]{3})(?:-(?P<last>[0-9]+|[A-Za-z]{3})(?:/(?P<step>[0-9]+))?)?"
)
# A longer number is too large for every field, and int() refuses very long numbers.
_MAX_DIGITS = 9
# The values of fields without mistakes, by the field's name and text: a crontab repeats the same few fields.
_cache: dict[tuple[str, str], tuple[int, ...]] = {}
_MAX_CACHED = 10_000
SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIVE_FIELDS = "five time fields (minute, hour, day of the month, month, day of the week)"
_LONGEST_MONTH = {1: 31, 2: 29, 3: 31, 4: 30, 5: 31, 6: 30, 7: 31, 8: 31, 9: 30, 10: 31, 11: 30, 12: 31}


@dataclass(frozen=True, slots=True)
class Field:
    """A time field: its name, and the values that it may have."""

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
        """The name and the range of the field, for messages."""
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


def read_field(kind: Field, text: str, collector: MistakeCollector, at: Position) -> tuple[int, ...]:
    """Return the sorted values of a field; report mistakes to the collector."""
    known = _cache.get((kind.name, text))
    if known is not None:
        return known
    before = len(collector)
    found = _read_parts(kind, text, collector, at)
    if len(collector) == before and len(_cache) < _MAX_CACHED:
        _cache[kind.name, text] = found
    return found


def _read_parts(kind: Field, text: str, collector: MistakeCollector, at: Position) -> tuple[int, ...]:
    values: set[int] = set()
    offset = 0
    for part in text.split(","):
        values.update(_read_part(kind, part, collector, at.shifted(offset)))
        offset += len(part) + 1
    return tuple(sorted({kind.alias.get(value, value) for value in values}))


def _read_part(kind: Field, part: str, collector: MistakeCollector, at: Position) -> Iterator[int]:
    match = _PART.fullmatch(part)
    if match is None:
        collector.add(f"{kind.described}, a range like {_example(kind)}, '*' or '*/n'", part, at)
        return iter(())
    if match["wildcard"]:
        step = _step(match, "wildcard_step", collector, at)
        return iter(range(kind.smallest, kind.largest + 1, step))
    return iter(_read_range(kind, match, collector, at))


def _read_range(kind: Field, match: re.Match[str], collector: MistakeCollector, at: Position) -> range:
    first = _value(kind, match, "first", collector, at)
    if match["last"] is None:
        return range(0) if first is None else range(first, first + 1)
    last = _value(kind, match, "last", collector, at)
    step = _step(match, "step", collector, at)
    if first is None or last is None:
        return range(0)
    if last == 0 and first > 0 and match["last"].upper() in kind.names:
        last = 7  # SAT-SUN: a range of weekdays may end on Sunday
    if last <= first:
        text = f"{match['first']}-{match['last']}"
        collector.add(f"a range whose end is larger than its start, like {_example(kind)}", text, at)
        return range(0)
    return range(first, last + 1, step)


def _value(kind: Field, match: re.Match[str], group: str, collector: MistakeCollector, at: Position) -> int | None:
    text = match[group]
    value = kind.names.get(text.upper())
    if value is None and text.isdigit() and len(text) <= _MAX_DIGITS:
        value = int(text)
    largest = max(kind.largest, *kind.alias) if kind.alias else kind.largest
    if value is None or not kind.smallest <= value <= largest:
        collector.add(kind.described, text, at.shifted(match.start(group)))
        return None
    return value


def _step(match: re.Match[str], group: str, collector: MistakeCollector, at: Position) -> int:
    text = match[group]
    if text is None:
        return 1
    step = int(text[:_MAX_DIGITS])
    if step == 0:
        collector.add("a step greater than zero", text, at.shifted(match.start(group)))
        return 1
    return step


def _example(kind: Field) -> str:
    return f"{kind.smallest + 1}-{kind.smallest + 5}"


def write_field(kind: Field, values: tuple[int, ...]) -> str:
    """Return the shortest text for sorted values, without steps and names: ``*``, numbers and ranges."""
    if values == kind.all_values:
        return "*"
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in consecutive_ranges(values))


def consecutive_ranges(values: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the (first, last) pair of each run of consecutive values in sorted values."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][1] == value - 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs


_ALL_DATES = len(DATE.all_values)
_ALL_WEEKDAYS = len(WEEKDAY.all_values)


@dataclass(frozen=True, slots=True)
class Pattern:
    """The sorted values of each time field; Sunday is 0."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    dates: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]

    @property
    def restricts_dates(self) -> bool:
        return len(self.dates) != _ALL_DATES

    @property
    def restricts_weekdays(self) -> bool:
        return len(self.weekdays) != _ALL_WEEKDAYS

    @property
    def either_day(self) -> bool:
        """True if both the day of the month and the day of the week are restricted: then either has to match."""
        return self.restricts_dates and self.restricts_weekdays

    def matches(self, local: datetime) -> bool:
        """Return whether the pattern includes this minute of its local time."""
        return (
            local.minute in self.minutes
            and local.hour in self.hours
            and local.month in self.months
            and self._matches_day(local.day, local.isoweekday() % 7)
        )

    def _matches_day(self, date: int, weekday: int) -> bool:
        if self.either_day:
            return date in self.dates or weekday in self.weekdays
        return date in self.dates and weekday in self.weekdays

    @property
    def is_possible(self) -> bool:
        """False for dates that never occur, such as the 30th of February."""
        if self.restricts_weekdays:
            return True
        return any(self.dates[0] <= _LONGEST_MONTH[month] for month in self.months)

    def __str__(self) -> str:
        values = (self.minutes, self.hours, self.dates, self.months, self.weekdays)
        return " ".join(write_field(kind, chosen) for kind, chosen in zip(FIELDS, values, strict=True))


@functools.lru_cache(maxsize=20_000)
def parse_pattern(text: str) -> Pattern:
    """Return the pattern of ``"*/5 4 * * MON"`` or ``"@daily"``; raise CrontabError with every mistake."""
    collector = MistakeCollector("pattern")
    pattern = read_pattern(text, collector, Position(column=1, context=text))
    raise_for(collector.mistakes)
    assert pattern is not None
    return pattern


def read_pattern(text: str, collector: MistakeCollector, at: Position) -> Pattern | None:
    """Return the pattern of a text that contains nothing else, or None if it has mistakes."""
    words = list(re.finditer(r"\S+", text))
    if len(words) == 1 and words[0][0].startswith("@"):
        return read_shorthand(words[0][0], collector, at.shifted(words[0].start()))
    if len(words) != len(FIELDS):
        collector.add(FIVE_FIELDS, text, at)
        return None
    return read_fields([(word[0], at.shifted(word.start())) for word in words], collector)


def read_shorthand(text: str, collector: MistakeCollector, at: Position) -> Pattern | None:
    expanded = SHORTHANDS.get(text.lower())
    if expanded is None:
        collector.add(f"one of {', '.join(SHORTHANDS)}, or {FIVE_FIELDS}", text, at)
        return None
    return parse_pattern(expanded)


def read_fields(words: list[tuple[str, Position]], collector: MistakeCollector) -> Pattern | None:
    before = len(collector)
    values = [read_field(kind, text, collector, at) for kind, (text, at) in zip(FIELDS, words, strict=True)]
    if len(collector) > before:
        return None
    pattern = Pattern(*values)
    if not pattern.is_possible:
        (dates, at), (months, _) = words[2], words[3]
        collector.add(f"a day that exists in month {months} (this item would never run)", dates, at)
        return None
    return pattern
