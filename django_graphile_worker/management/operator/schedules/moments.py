"""Reads and writes times: on the command line and in files, in the time zone of their schedule."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from django.utils.dateparse import parse_datetime

from django_graphile_worker.crontab.times import load_zone, parse_time_phrase
from django_graphile_worker.management.operator import formatting
from django_graphile_worker.text import quoted

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
EXPECTED = "a time like 2026-05-01T12:00 or 2026-05-01T12:00+02:00"


def zone_or_utc(name: str) -> ZoneInfo:
    """Return a time zone, or UTC for a name that the validation of the schedule refuses."""
    try:
        return load_zone(name)
    except (ValueError, TypeError):
        return ZoneInfo("UTC")


def parse_iso(text: str, *, zone: str) -> datetime:
    """Return a time of ISO 8601, in the zone unless it names another; raise ValueError for any other text."""
    try:
        moment = parse_datetime(f"{text}T00:00" if _DATE.fullmatch(text) else text)
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError(f"expected {EXPECTED}, got {quoted(text)}")
    return moment.replace(tzinfo=zone_or_utc(zone)) if moment.tzinfo is None else moment


def parse_moment(text: str, *, zone: str, now: datetime) -> datetime:
    """Return a time of the command line: ``now``, ``+5m`` from now, or ISO 8601."""
    if text == "now":
        return now
    try:
        if text.startswith("+"):
            return now + parse_time_phrase(text[1:])
        return parse_iso(text, zone=zone)
    except (ValueError, OverflowError):
        raise ValueError(f"expected 'now', a period like +5m or +1h30m, or {EXPECTED}, got {quoted(text)}") from None


def as_iso(moment: datetime, *, zone: str) -> str:
    """Return a time for a file that people read: in the zone of its schedule."""
    aware = formatting.aware(moment)
    try:
        return aware.astimezone(zone_or_utc(zone)).isoformat()
    except OverflowError:
        return aware.astimezone(UTC).isoformat()
