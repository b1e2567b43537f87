"""Finds the items that are due at a minute, and the next times of an item."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django_graphile_worker.crontab.fields import FIELDS
from django_graphile_worker.crontab.items import CronItem
from django_graphile_worker.crontab.occurrences import Matcher, matcher_times, pattern_times
from django_graphile_worker.crontab.patterns import Pattern, parse_pattern
from django_graphile_worker.crontab.zones import local_minutes

# The search for the next time of a callable calls it for each minute, so it ends after this period.
LOOK_AHEAD = timedelta(days=35)

OnError = Callable[[CronItem, Exception], None]


def occurrences(item: CronItem, after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the UTC minutes in (after, until] at which an item is due, in order."""
    if not isinstance(item.match, str):
        return matcher_times(item.match, item.zone, after, until)
    times = pattern_times(parse_pattern(item.match), item.zone, after)
    return itertools.takewhile(lambda instant: instant <= until, times)


def upcoming(
    item: CronItem, after: datetime, count: int = 1, *, look_ahead: timedelta = LOOK_AHEAD
) -> tuple[datetime, ...]:
    """Return the next times (UTC) of an item; fewer than ``count`` if a callable is not due within ``look_ahead``."""
    if isinstance(item.match, str):
        times = pattern_times(parse_pattern(item.match), item.zone, after)
    else:
        times = matcher_times(item.match, item.zone, after, after + look_ahead)
    return tuple(itertools.islice(times, count))


def _raise(item: CronItem, error: Exception) -> None:
    raise error


class Timetable:
    """All items, indexed so that finding the due items takes as long for thousands of items as for a single item."""

    def __init__(self, items: Iterable[CronItem]) -> None:
        self.items = tuple(items)
        grouped: dict[str | None, list[int]] = {}
        for index, item in enumerate(self.items):
            zone = item.zone
            grouped.setdefault(zone.key if zone else None, []).append(index)
        self._groups = [_Group(self.items, chosen) for chosen in grouped.values()]

    def due(self, minute: datetime, on_error: OnError = _raise) -> tuple[CronItem, ...]:
        """Return the items that fire at this UTC minute, in the order of ``items``."""
        chosen = itertools.chain.from_iterable(group.due(minute, on_error) for group in self._groups)
        return tuple(self.items[index] for index in sorted(chosen))


class _Group:
    """The items of one time zone. A set of items is an integer with a bit for each item."""

    def __init__(self, items: tuple[CronItem, ...], chosen: list[int]) -> None:
        self._items = items
        self._zone: ZoneInfo | None = items[chosen[0]].zone
        self._matchers: list[tuple[int, Matcher]] = []
        self._by_value: list[list[int]] = [[0] * (kind.largest + 1) for kind in FIELDS]
        self._either_day = 0
        for index in chosen:
            match = items[index].match
            if isinstance(match, str):
                self._index(parse_pattern(match), 1 << index)
            else:
                self._matchers.append((index, match))

    def _index(self, pattern: Pattern, bit: int) -> None:
        fields = (pattern.minutes, pattern.hours, pattern.dates, pattern.months, pattern.weekdays)
        for table, values in zip(self._by_value, fields, strict=True):
            for value in values:
                table[value] |= bit
        if pattern.either_day:
            self._either_day |= bit

    def due(self, minute: datetime, on_error: OnError) -> Iterator[int]:
        locals_ = local_minutes(minute, self._zone)
        matching = 0
        for local in locals_:
            matching |= self._matching(local)
        yield from _bits(matching)
        for index, matcher in self._matchers:
            try:
                if any(matcher(local) for local in locals_):
                    yield index
            except Exception as error:
                on_error(self._items[index], error)

    def _matching(self, local: datetime) -> int:
        minutes, hours, dates, months, weekdays = self._by_value
        by_date, by_weekday = dates[local.day], weekdays[local.isoweekday() % 7]
        days = (by_date & by_weekday) | (self._either_day & (by_date | by_weekday))
        return minutes[local.minute] & hours[local.hour] & months[local.month] & days


def _bits(number: int) -> Iterator[int]:
    """Yield the positions of the bits that are set, lowest first."""
    digits = bin(number)[:1:-1]
    position = digits.find("1")
    while position >= 0:
        yield position
        position = digits.find("1", position + 1)
