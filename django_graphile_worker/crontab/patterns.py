"""``Pattern``: the values of the five time fields that determine when an item is due."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from datetime import datetime

from django_graphile_worker.crontab.errors import MistakeCollector, Position, raise_for
from django_graphile_worker.crontab.fields import DATE, FIELDS, WEEKDAY, read_field, write_field

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
