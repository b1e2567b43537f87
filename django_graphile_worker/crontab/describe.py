"""Describes in English when an item is due, for readers who do not know crontab syntax."""

from __future__ import annotations

from collections.abc import Sequence

from django_graphile_worker.crontab.fields import DATE, HOUR, MINUTE, MONTH, Field, consecutive_ranges
from django_graphile_worker.crontab.items import CronItem
from django_graphile_worker.crontab.patterns import Pattern, parse_pattern

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
# More clock times than this are described as minutes and hours.
_MOST_TIMES = 6


def describe(item: CronItem) -> str:
    """Describe when an item is due: ``At 04:00, Monday to Friday (Europe/Paris)``."""
    if not isinstance(item.match, str):
        name = getattr(item.match, "__qualname__", None) or type(item.match).__qualname__
        sentence = f"Whenever {name}() returns true"
    else:
        sentence = describe_pattern(parse_pattern(item.match))
    return f"{sentence} ({item.zone.key if item.zone else 'UTC'})"


def describe_pattern(pattern: Pattern) -> str:
    parts = [_time(pattern), *_day(pattern)]
    if pattern.months != MONTH.all_values:
        parts.append("in " + _spans([(_MONTHS[a - 1], _MONTHS[b - 1]) for a, b in consecutive_ranges(pattern.months)]))
    return ", ".join(parts)


def _time(pattern: Pattern) -> str:
    times = [f"{hour:02}:{minute:02}" for hour in pattern.hours for minute in pattern.minutes[:7]]
    if pattern.hours != HOUR.all_values and len(times) <= _MOST_TIMES:
        return f"At {_list(times)}"
    minutes = _every(MINUTE, pattern.minutes, "minute")
    if pattern.hours == HOUR.all_values:
        if minutes:
            return minutes.capitalize()
        return f"At {_numbers('minute', pattern.minutes)} of every hour"
    minutes = minutes or f"at {_numbers('minute', pattern.minutes)}"
    hours = _every(HOUR, pattern.hours, "hour") or f"hours {_ranges(pattern.hours)}"
    return f"{minutes[0].upper()}{minutes[1:]} of {hours}"


def _day(pattern: Pattern) -> list[str]:
    """Return at most one phrase: the days of the month, of the week, or either."""
    phrases = []
    if pattern.restricts_dates:
        every = _every(DATE, pattern.dates, "day")
        if every:
            phrases.append(f"{every} of the month, from the 1st")
        else:
            phrases.append(f"on {_numbers('day', pattern.dates)} of the month")
    if pattern.restricts_weekdays:
        names = _spans([(_WEEKDAYS[a], _WEEKDAYS[b]) for a, b in consecutive_ranges(pattern.weekdays)])
        phrases.append(f"on {names}")
    return [" or ".join(phrases)] if phrases else []


def _every(kind: Field, values: Sequence[int], noun: str) -> str:
    """Return ``every 5 minutes`` if the values are ``*/5``, else nothing."""
    if tuple(values) == kind.all_values:
        return f"every {noun}"
    if len(values) < 3:
        return ""
    step = values[1] - values[0]
    if tuple(values) == tuple(range(kind.smallest, kind.largest + 1, step)):
        return f"every {step} {noun}s"
    return ""


def _numbers(noun: str, values: tuple[int, ...]) -> str:
    return f"{noun}{'s' if len(values) > 1 else ''} {_ranges(values)}"


def _ranges(values: tuple[int, ...]) -> str:
    return _spans([(str(first), str(last)) for first, last in consecutive_ranges(values)])


def _spans(runs: list[tuple[str, str]]) -> str:
    return _list([first if first == last else f"{first} to {last}" for first, last in runs])


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
