"""Schedules as entries of a JSON file, which people read and keep under version control.

An entry has the fields of the model under their names. A field with its default value is left out, periods are written
like ``1h30m``, and times are written in the time zone of the schedule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django_graphile_worker.management.operator import formatting
from django_graphile_worker.management.operator.arguments import did_you_mean
from django_graphile_worker.management.operator.schedules import states
from django_graphile_worker.management.operator.schedules.moments import as_iso, parse_iso
from django_graphile_worker.models import Schedule
from django_graphile_worker.schedules.words import interval_text, parse_interval
from django_graphile_worker.text import quoted

PERIODS = ("interval", "missed_within")
MOMENTS = ("run_at", "starts_at", "ends_at", "paused_until")
NUMBERS = ("priority", "max_attempts")
# The definition of a schedule, in the order of the file.
FIELDS = (
    "name",
    "description",
    "task",
    "payload",
    "cron",
    "interval",
    "run_at",
    "time_zone",
    "starts_at",
    "ends_at",
    "queue_name",
    "priority",
    "max_attempts",
    "job_key",
    "missed",
    "missed_within",
    "overlap",
    "is_enabled",
    "paused_until",
)
REQUIRED = ("name", "task")
# paused_until of a pause without an end: "paused until resumed".
RESUMED = "resumed"


@dataclass(frozen=True, slots=True)
class Entry:
    """The fields of one entry. A field that the entry does not have has its default, but a pause is left as it is."""

    name: str
    values: dict[str, Any]
    mistakes: dict[str, list[str]]


def defaults() -> dict[str, Any]:
    """Return the values of the fields that an entry may leave out."""
    usual = Schedule()
    return {name: getattr(usual, name) for name in FIELDS if name not in REQUIRED}


def entry_of(schedule: Schedule) -> dict[str, Any]:
    """Return the entry of a schedule."""
    usual = defaults()
    return {
        name: written(name, getattr(schedule, name), schedule.time_zone)
        for name in FIELDS
        if name in REQUIRED or getattr(schedule, name) != usual[name]
    }


def written(name: str, value: Any, zone: str) -> Any:
    """Return the value of a field as an entry has it."""
    if value is None:
        return None
    if name in PERIODS:
        return interval_text(value)
    if name == "paused_until" and formatting.aware(value) >= states.NEVER:
        return RESUMED
    if name in MOMENTS:
        return as_iso(value, zone=zone)
    return str(value) if name in ("missed", "overlap") else value


def read_entry(value: Any, place: str) -> Entry:
    """Return the fields of an entry, with every mistake in its types; ``place`` names an entry without a name."""
    if not isinstance(value, Mapping):
        return Entry(place, {}, {"": [f"expected an object with the fields of a schedule, got {quoted(value)}."]})
    mistakes: dict[str, list[str]] = {}
    for name in value:
        if name not in FIELDS:
            hint = did_you_mean(name, FIELDS)
            mistakes[name] = [f"expected a field of a schedule ({', '.join(FIELDS)}), got {quoted(name)}.{hint}"]
    zone = value.get("time_zone", "UTC")
    values = {}
    for name in FIELDS:
        if name not in value:
            if name in REQUIRED:
                mistakes[name] = ["expected a value, got none."]
            continue
        try:
            values[name] = _read(name, value[name], zone if isinstance(zone, str) else "UTC")
        except ValueError as error:
            mistakes[name] = [str(error)]
    name = values.get("name")
    return Entry(f"schedule {quoted(name)}" if name else place, values, mistakes)


def _read(name: str, value: Any, zone: str) -> Any:
    if value is None and defaults().get(name, "") is None:
        return None
    expected, is_right = _TYPES.get(name, _TEXT)
    if not is_right(value):
        raise ValueError(f"expected {expected}, got {quoted(value)}.")
    if name in PERIODS:
        return parse_interval(value)
    if name == "paused_until" and value == RESUMED:
        return Schedule.FOREVER
    return parse_iso(value, zone=zone) if name in MOMENTS else value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_Type = tuple[str, Callable[[Any], bool]]
_TEXT: _Type = ("a text", _is_text)
_TYPES: dict[str, _Type] = {
    "payload": ("an object", lambda value: isinstance(value, dict)),
    "is_enabled": ("true or false", lambda value: isinstance(value, bool)),
    **dict.fromkeys(NUMBERS, ("a whole number", _is_number)),
    **dict.fromkeys(PERIODS, ("a period like '10s' or '1h30m'", _is_text)),
    **dict.fromkeys(MOMENTS, ("a time like '2026-05-01T12:00'", _is_text)),
}


def is_same(name: str, one: Any, other: Any) -> bool:
    """Return whether two values of a field are the same; Python takes True for 1, JSON does not."""
    if name == "payload":
        return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    if name in MOMENTS and one is not None and other is not None:
        return formatting.aware(one) == formatting.aware(other)
    return bool(one == other)
