"""Checks ``CronItem`` objects by the same rules as the lines of a crontab."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django_graphile_worker.crontab.errors import MistakeCollector, Position
from django_graphile_worker.crontab.items import CronItem
from django_graphile_worker.crontab.patterns import read_pattern
from django_graphile_worker.crontab.times import EXPECTED_TIME_PHRASE, LONGEST_PERIOD, load_zone, parse_time_phrase
from django_graphile_worker.job_options import (
    LARGEST_MAX_ATTEMPTS,
    LARGEST_PRIORITY,
    MAX_IDENTIFIER_LENGTH,
    MAX_JOB_KEY_LENGTH,
    MAX_QUEUE_NAME_LENGTH,
    SMALLEST_PRIORITY,
    valid_flags,
    valid_identifier,
    valid_job_key,
    valid_job_key_mode,
    valid_max_attempts,
    valid_priority,
    valid_queue_name,
)

LONGEST_IDENTIFIER = 512


def checked_item(item: CronItem, collector: MistakeCollector) -> CronItem | None:
    """Return the item with plain values in every attribute, or None if it has mistakes."""
    before = len(collector)
    values = {name: _checked(name, read, expected, item, collector) for name, (read, expected) in _RULES.items()}
    values["match"] = _checked_match(item.match, collector)
    if len(collector) > before:
        return None
    values["identifier"] = values["identifier"] or values["task"]
    return replace(item, **values)


def _checked(name: str, read: Callable[[Any], Any], expected: str, item: CronItem, collector: MistakeCollector) -> Any:
    value = getattr(item, name)
    try:
        return read(value)
    except (ValueError, TypeError) as error:
        # The errors of these two attributes are more precise than a fixed sentence.
        reason = str(error) if name in {"payload", "time_zone"} else expected
        collector.add(f"{name} to be {reason}", value if isinstance(value, str) else repr(value))
        return None


def _checked_match(match: object, collector: MistakeCollector) -> Any:
    if callable(match):
        return match
    if not isinstance(match, str):
        collector.add("match to be a pattern like '0 4 * * *' or a callable", repr(match))
        return None
    read_pattern(match, collector, Position(column=1, context=match))
    return " ".join(match.split())


def _optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _identifier(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_IDENTIFIER or "\x00" in value:
        raise ValueError(value)
    value.encode()
    return value


def _period(value: object) -> timedelta:
    if isinstance(value, str):
        return parse_time_phrase(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        value = timedelta(seconds=min(value, 2 * LONGEST_PERIOD.total_seconds()))
    if not isinstance(value, timedelta) or not timedelta(0) <= value <= LONGEST_PERIOD:
        raise ValueError(value)
    return value


def _zone_key(value: object) -> str:
    if isinstance(value, ZoneInfo) and value.key:
        value = value.key
    if not isinstance(value, str):
        raise ValueError("the name of an IANA time zone, like 'Europe/Paris'")
    return load_zone(value).key


def plain_payload(payload: object) -> dict[str, Any]:
    """Return the payload after a round trip through JSON; raise ValueError with what was expected."""
    if not isinstance(payload, Mapping):
        raise ValueError("an object (a dict) as payload")
    try:
        text = json.dumps(dict(payload), allow_nan=False, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a payload without half a surrogate pair, which PostgreSQL cannot store") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a payload that JSON can hold ({error})") from None
    if r"\u0000" in text.replace(r"\\", ""):
        raise ValueError(r"a payload without the character \u0000, which PostgreSQL cannot store")
    plain: dict[str, Any] = json.loads(text)
    return plain


_RULES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "task": (valid_identifier, f"a task identifier of 1 to {MAX_IDENTIFIER_LENGTH} characters"),
    "payload": (_optional(plain_payload), ""),
    "identifier": (_optional(_identifier), f"a name of 1 to {LONGEST_IDENTIFIER} characters"),
    "backfill_period": (_period, f"a timedelta, seconds, or {EXPECTED_TIME_PHRASE}; not negative"),
    "max_attempts": (valid_max_attempts, f"a whole number from 1 to {LARGEST_MAX_ATTEMPTS}"),
    "queue_name": (valid_queue_name, f"a name of 1 to {MAX_QUEUE_NAME_LENGTH} characters"),
    "priority": (valid_priority, f"a whole number from {SMALLEST_PRIORITY} to {LARGEST_PRIORITY}"),
    "job_key": (valid_job_key, f"a key of 1 to {MAX_JOB_KEY_LENGTH} characters"),
    "job_key_mode": (valid_job_key_mode, "'replace', 'preserve_run_at' or 'unsafe_dedupe'"),
    "flags": (valid_flags, "a list or set of strings"),
    "time_zone": (_optional(_zone_key), ""),
}
