"""The values of a schedule as people read them: named, with times in its time zone, and choices in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from django.utils import translation
from django.utils.dateparse import parse_datetime, parse_duration
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.jobs.detail.payload_tree import to_json
from django_graphile_worker.models import Schedule
from django_graphile_worker.payloads import decode_leniently
from django_graphile_worker.redaction import redact
from django_graphile_worker.schedules.times import zone_of
from django_graphile_worker.schedules.words import interval_text

# The definition, in the order of the form.
FIELDS = (
    "name", "task", "payload", "description", "is_enabled", "paused_until", "cron", "interval", "run_at", "time_zone",
    "starts_at", "ends_at", "missed", "missed_within", "overlap", "queue_name", "priority", "max_attempts", "job_key",
)  # fmt: skip
TIMES = frozenset({"paused_until", "run_at", "starts_at", "ends_at"})
INTERVALS = frozenset({"interval", "missed_within"})
CHOICES: Mapping[str, Any] = {"missed": Schedule.Missed, "overlap": Schedule.Overlap}
LONGEST_PAYLOAD = 2_000


@dataclass(frozen=True, slots=True)
class ChangedField:
    """A field with two values. Both are empty if the user may not see them."""

    label: str
    before: str = ""
    after: str = ""
    is_code: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """A value of a schedule."""

    label: str
    value: str
    is_code: bool = False


def label(name: str) -> str:
    """Return the name of a field in the language of the user."""
    return str(capfirst(Schedule._meta.get_field(name).verbose_name))  # type: ignore[union-attr]


def field_msgids(names: Iterable[str]) -> list[str]:
    """Return the names of fields in English, which the audit log stores."""
    with translation.override(None):
        return [str(Schedule._meta.get_field(name).verbose_name) for name in names]  # type: ignore[union-attr]


def shown(name: str, value: Any, zone: tzinfo | None) -> str:
    """Return a value of a definition; a dash for null."""
    if value is None or value == "":
        return formatting.EMPTY_VALUE
    if isinstance(value, bool):
        return _("Yes") if value else _("No")
    if isinstance(value, datetime):
        if formatting.aware(value) >= formatting.LATEST:
            return _("until someone resumes it")
        return formatting.in_both_zones(formatting.aware(value), zone or UTC)
    if isinstance(value, timedelta):
        return interval_text(value)
    if name in CHOICES and value in CHOICES[name].values:
        return str(CHOICES[name](value).label)
    if name == "payload":
        text = to_json(redact(value), indent=2)
        return text if len(text) <= LONGEST_PAYLOAD else f"{text[:LONGEST_PAYLOAD]}…"
    return str(value)


def facts_of(schedule: Schedule, *, sees_payload: bool) -> list[Fact]:
    """Return the values that a schedule has, without its name."""
    zone = zone_or_utc(schedule.time_zone)
    names = [name for name in FIELDS if name != "name" and (sees_payload or name != "payload")]
    values = [(name, getattr(schedule, name)) for name in names]
    return [
        Fact(label(name), shown(name, value, zone), is_code=name == "payload")
        for name, value in values
        if value not in (None, "")
    ]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[ChangedField]:
    """Return the fields that differ between two definitions as the database has stored them, without payloads."""
    zones = [zone_or_utc(str(each.get("time_zone", ""))) for each in (before, after)]
    old, new = dict(from_json(before)), dict(from_json(after))
    return [
        ChangedField(label(name), shown(name, old[name], zones[0]), shown(name, new[name], zones[1]))
        for name in FIELDS
        if name != "payload" and old[name] != new[name]
    ]


def payload_text(text: str | None) -> str:
    """Return a payload of the record of changes, without its secrets; empty if the record has none."""
    return "" if text is None else shown("payload", decode_leniently(text), None)


def from_json(definition: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values of a definition that the database has stored as JSON."""
    for name in FIELDS:
        value = definition.get(name)
        if isinstance(value, str) and name in TIMES:
            yield name, parse_datetime(value) or value
        elif isinstance(value, str) and name in INTERVALS:
            yield name, parse_duration(value) or value
        else:
            yield name, value


def zone_or_utc(name: str) -> tzinfo:
    try:
        return zone_of(name) or UTC
    except ValueError:
        return UTC
