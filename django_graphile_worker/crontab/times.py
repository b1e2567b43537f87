"""Times: periods as text, time zones, and the minutes at which a pattern or a function is due.

In every zone and at every time change, each local minute fires once. A minute that the clock skips (in spring) fires at
the first instant after the gap; a minute that occurs twice (in autumn) fires the first time.
"""

from __future__ import annotations

import calendar
import functools
import re
import zoneinfo
from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import MAXYEAR, UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django_graphile_worker.crontab.patterns import Pattern
from django_graphile_worker.text import closest

# The longest unit of graphile-worker is a week. Years are an addition of this package: each has 365 days.
_UNITS = {
    "y": timedelta(days=365),
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
}
_PHRASE = re.compile(r"(?:[0-9]{1,12}[ywdhms])+")
_TERM = re.compile(r"([0-9]+)([ywdhms])")

LONGEST_PERIOD = timedelta(days=36_500)
EXPECTED_TIME_PHRASE = "a time phrase of at most 100 years, like 4w3d2h1m or 1y (units y, w, d, h, m, s)"
MINUTE = timedelta(minutes=1)
Matcher = Callable[[datetime], bool]


def parse_time_phrase(text: str) -> timedelta:
    """Return the period that a time phrase means; raise ValueError for any other text."""
    if not _PHRASE.fullmatch(text):
        raise ValueError(f"expected {EXPECTED_TIME_PHRASE}, got {text!r}")
    seconds = sum(int(count) * int(_UNITS[unit].total_seconds()) for count, unit in _TERM.findall(text))
    if seconds > LONGEST_PERIOD.total_seconds():
        raise ValueError(f"expected {EXPECTED_TIME_PHRASE}, got {text!r}")
    return timedelta(seconds=seconds)


def format_time_phrase(period: timedelta) -> str:
    """Return the shortest phrase for a period, in the units that graphile-worker has (no years)."""
    if period.microseconds or period < timedelta(0):
        raise ValueError(f"expected a period of whole seconds, got {period!r}")
    text, rest = "", period
    for unit in "wdhms":
        count, rest = divmod(rest, _UNITS[unit])
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def load_zone(key: str) -> ZoneInfo:
    """Return the zone of this name; raise ValueError with what was expected."""
    try:
        return ZoneInfo(key)
    except (KeyError, ValueError, OSError):
        raise ValueError(_expected(key)) from None


def _expected(key: str) -> str:
    known = zoneinfo.available_timezones()
    in_some_region = (name for name in sorted(known) if name.lower().endswith(f"/{key.lower()}"))
    near = closest(key, known, cutoff=0.7) or next(in_some_region, None)
    return "an IANA time zone like Europe/Paris" + (f" (did you mean {near}?)" if near else "")


def local_minutes(instant: datetime, zone: ZoneInfo | None) -> list[datetime]:
    """Return the local minutes that fire at a UTC minute: usually one; none or many at a time change."""
    if zone is None:
        return [instant]
    local = instant.astimezone(zone)
    if local.fold:
        return []
    skipped = _offset(local) - _offset((instant - MINUTE).astimezone(zone))
    if skipped <= timedelta(0):
        return [local]
    wall_clock = local.replace(tzinfo=None)
    return [
        (wall_clock - MINUTE * minutes_before).replace(tzinfo=zone)
        for minutes_before in range(skipped // MINUTE, -1, -1)
    ]


def instant_of(wall_clock: datetime, zone: ZoneInfo | None) -> datetime:
    """Return the UTC minute at which a (naive) local minute fires."""
    if zone is None:
        return wall_clock.replace(tzinfo=UTC)
    local = wall_clock.replace(tzinfo=zone)
    instant = local.astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == wall_clock:
        return instant
    return _end_of_gap(instant, zone, _offset(local))


def _end_of_gap(after: datetime, zone: ZoneInfo, old_offset: timedelta) -> datetime:
    """Return the first minute with the new offset; ``after`` is later than it by at most the length of the gap."""
    new_offset = _offset(after.astimezone(zone))
    early, late = after - (new_offset - old_offset), after
    while late - early > MINUTE:
        middle = early + (late - early) // MINUTE // 2 * MINUTE
        if _offset(middle.astimezone(zone)) == old_offset:
            early = middle
        else:
            late = middle
    return late


def _offset(local: datetime) -> timedelta:
    return local.utcoffset() or timedelta(0)


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
