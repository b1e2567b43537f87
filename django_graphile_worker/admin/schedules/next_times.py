"""The next times of a schedule, with a mark where the clocks of its time zone change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from django_graphile_worker.admin import formatting
from django_graphile_worker.schedules.times import Definition
from django_graphile_worker.schedules.validation import WHEN, errors_in

NUMBER = 5


@dataclass(frozen=True, slots=True)
class NextTime:
    """A time as the pages show it. ``clock_change`` tells of a time change before it, in words."""

    at: datetime
    now: datetime
    exact: str
    clock_change: str = ""

    @property
    def relative(self) -> SafeString | str:
        """How far away it is. The list shows it of the first time only."""
        return formatting.relative_time(self.at, self.now)


def mistake_in(definition: Definition, error: Exception) -> str:
    """Return what is wrong with a definition, in sentences; a program can write a line that no parser reads."""
    found = errors_in({name: getattr(definition, name) for name in (*WHEN, "time_zone")})
    return " ".join(str(capfirst(text)) for texts in found.values() for text in texts) or str(error)


def shown_times(times: Iterable[datetime], zone: tzinfo | None, now: datetime) -> tuple[NextTime, ...]:
    """Return times in the zone of the user and in that of the schedule."""
    zone = zone or UTC
    found, offset = [], _offset(now, zone)
    for time in times:
        change = _offset(time, zone) - offset
        offset += change
        found.append(NextTime(time, now, formatting.in_both_zones(time, zone), _in_words(change)))
    return tuple(found)


def _offset(time: datetime, zone: tzinfo) -> timedelta:
    return formatting.aware(time).astimezone(zone).utcoffset() or timedelta()


def _in_words(change: timedelta) -> str:
    seconds = change.total_seconds()
    if not seconds:
        return ""
    values = {"duration": formatting.duration(abs(seconds))}
    if seconds > 0:
        return _("after the clocks go forward by %(duration)s") % values
    return _("after the clocks go back by %(duration)s") % values
