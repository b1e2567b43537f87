"""Formats times: for operators in the current time zone and relative to now, for programs in ISO 8601.

``admin/formatting.py`` formats times for the admin, translated and in HTML; durations are in ``durations.py``.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.utils import timezone

from django_graphile_worker.text import in_largest_unit


def aware(moment: datetime) -> datetime:
    """Return a time from the database with its time zone; it is naive if the project has USE_TZ = False."""
    return timezone.make_aware(moment, timezone.get_default_timezone()) if timezone.is_naive(moment) else moment


def absolute(moment: datetime) -> str:
    """Return the time in the current time zone."""
    return aware(moment).astimezone(timezone.get_current_timezone()).strftime("%Y-%m-%d %H:%M:%S")


def relative(moment: datetime, now: datetime) -> str:
    """Return the distance from now: ``in 5 m`` or ``3 h ago``."""
    seconds = (aware(moment) - aware(now)).total_seconds()
    if round(seconds) == 0:
        return "now"
    return f"in {in_largest_unit(seconds)}" if seconds > 0 else f"{in_largest_unit(seconds)} ago"


def both(moment: datetime | None, now: datetime) -> str:
    """Return ``2026-05-01 12:00:00 (in 5 m)``, or a dash for never."""
    return "-" if moment is None else f"{absolute(moment)} ({relative(moment, now)})"


def iso(moment: datetime | None) -> str | None:
    """Return the time for programs, always in UTC."""
    return None if moment is None else aware(moment).astimezone(UTC).isoformat()
