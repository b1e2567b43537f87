"""Computes the times of a pattern from its months, days, hours and minutes, without trying every minute."""

from __future__ import annotations

import calendar
import functools
from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import MAXYEAR, UTC, datetime
from zoneinfo import ZoneInfo

from django_graphile_worker.crontab.patterns import Pattern
from django_graphile_worker.crontab.zones import MINUTE, instant_of, local_minutes

Matcher = Callable[[datetime], bool]


def floor_minute(instant: datetime) -> datetime:
    """Return the UTC minute that contains an aware instant."""
    return instant.astimezone(UTC).replace(second=0, microsecond=0)


def pattern_times(pattern: Pattern, zone: ZoneInfo | None, after: datetime) -> Iterator[datetime]:
    """Yield every UTC minute later than ``after`` at which the pattern fires, in order, until year 9999."""
    last = floor_minute(after)
    try:
        start = last.astimezone(zone).replace(tzinfo=None) if zone else last.replace(tzinfo=None)
        for wall_clock in wall_clock_times(pattern, start + MINUTE):
            instant = instant_of(wall_clock, zone)
            # All minutes that a time change skips have the same instant, and a minute that it repeats may be past.
            if instant > last:
                last = instant
                yield instant
    except OverflowError:
        return


def wall_clock_times(pattern: Pattern, start: datetime) -> Iterator[datetime]:
    """Yield every naive minute from ``start`` on (a whole minute) that the pattern includes, in order."""
    for year, month, date in _days(pattern, start):
        today = (year, month, date) == (start.year, start.month, start.day)
        hours = pattern.hours[bisect_left(pattern.hours, start.hour) :] if today else pattern.hours
        for hour in hours:
            first_minute = start.minute if today and hour == start.hour else 0
            for minute in pattern.minutes:
                if minute >= first_minute:
                    yield datetime(year, month, date, hour, minute)  # noqa: DTZ001 - a wall clock


def _days(pattern: Pattern, start: datetime) -> Iterator[tuple[int, int, int]]:
    for year, month in _months(pattern, start):
        monday_first, length = calendar.monthrange(year, month)
        first_weekday = (monday_first + 1) % 7
        first_date = start.day if (year, month) == (start.year, start.month) else 1
        for date in _dates_of_month(pattern, first_weekday, length):
            if date >= first_date:
                yield year, month, date


def _months(pattern: Pattern, start: datetime) -> Iterator[tuple[int, int]]:
    for year in range(start.year, MAXYEAR + 1):
        for month in pattern.months:
            if year > start.year or month >= start.month:
                yield year, month


@functools.lru_cache(maxsize=8192)
def _dates_of_month(pattern: Pattern, first_weekday: int, length: int) -> tuple[int, ...]:
    """Return the matching days of a month with this length and first weekday."""
    by_date = {date for date in pattern.dates if date <= length}
    by_weekday = {date for date in range(1, length + 1) if (first_weekday + date - 1) % 7 in pattern.weekdays}
    return tuple(sorted(by_date | by_weekday if pattern.either_day else by_date & by_weekday))


def matcher_times(matcher: Matcher, zone: ZoneInfo | None, after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the minutes in (after, until] for which a callable returns true; it is called for each minute."""
    instant = floor_minute(after) + MINUTE
    while instant <= until:
        if any(matcher(local) for local in local_minutes(instant, zone)):
            yield instant
        instant += MINUTE
