"""Time zones: maps local minutes to the UTC minutes at which they fire, and back.

In every zone and at every time change, each local minute fires once. A minute
that the clock skips (in spring) fires at the first instant after the gap; a minute
that occurs twice (in autumn) fires the first time.
"""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django_graphile_worker.suggestions import closest

MINUTE = timedelta(minutes=1)


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
