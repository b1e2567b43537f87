"""Times as people say them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from django_graphile_worker.crontab.time_phrases import EXPECTED_TIME_PHRASE, parse_time_phrase

# The largest unit that fits is told, and nothing below it: "3 h ago", not "3 h 12 m 5 s ago".
_UNITS = ((86_400 * 365, "y"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def aware(moment: datetime) -> datetime:
    """A time as the database gave it: naive where the project has USE_TZ = False."""
    return timezone.make_aware(moment, timezone.get_default_timezone()) if timezone.is_naive(moment) else moment


def absolute(moment: datetime) -> str:
    """The time in the current time zone."""
    return aware(moment).astimezone(timezone.get_current_timezone()).strftime("%Y-%m-%d %H:%M:%S")


def span(seconds: float) -> str:
    """How long: ``5 m``."""
    seconds = round(abs(seconds))
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return "0 s"


def relative(moment: datetime, now: datetime) -> str:
    """How far from now: ``in 5 m`` or ``3 h ago``."""
    seconds = (aware(moment) - aware(now)).total_seconds()
    if round(seconds) == 0:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(seconds)} ago"


def both(moment: datetime | None, now: datetime) -> str:
    """``2026-05-01 12:00:00 (in 5 m)``, or a dash for never."""
    return "-" if moment is None else f"{absolute(moment)} ({relative(moment, now)})"


def iso(moment: datetime | None) -> str | None:
    """For machines: always UTC."""
    return None if moment is None else aware(moment).astimezone(UTC).isoformat()


def parse_period(text: str) -> timedelta:
    """A period like ``7d`` or ``1h30m``."""
    try:
        return parse_time_phrase(text)
    except ValueError:
        raise ValueError(f"expected {EXPECTED_TIME_PHRASE}, got {text!r}") from None


def parse_run_at(text: str) -> datetime | timedelta:
    """A time: ``now``, ``+5m`` from now, or ISO 8601 (in the current time zone unless it says another)."""
    if text == "now":
        return timedelta(0)
    try:
        if text.startswith("+"):
            return parse_time_phrase(text[1:])
        moment = parse_datetime(f"{text}T00:00" if _DATE.fullmatch(text) else text)
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError(f"expected 'now', a period like +5m or +1h30m, or a time like 2026-05-01T12:00, got {text!r}")
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment
