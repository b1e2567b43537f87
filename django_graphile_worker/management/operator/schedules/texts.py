"""Schedules as lines, facts and JSON: their states, and times in their time zones."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.color import Style
from django.db.models import Q
from django.utils.dateparse import parse_datetime

from django_graphile_worker import registry
from django_graphile_worker.crontab.times import load_zone, parse_time_phrase
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.management.operator import formatting
from django_graphile_worker.management.operator.formatting import Cell
from django_graphile_worker.models import Schedule
from django_graphile_worker.schedules.times import Definition
from django_graphile_worker.schedules.words import in_words, interval_text
from django_graphile_worker.sql.schedules.runs import Run
from django_graphile_worker.text import quoted, shown

ENABLED, PAUSED, DISABLED, ENDED, UNKNOWN_TASK = "enabled", "paused", "disabled", "ended", "unknown task"
FAILING = "failing"
STATES = ("enabled", "paused", "disabled", "ended", "failing")
# next_at is infinity if nothing will be fired; the model reads it as the last day of Python's calendar.
NEVER = datetime(9999, 1, 1, tzinfo=UTC)
TO_BE_COMPUTED = datetime(2, 1, 1, tzinfo=UTC)


def next_at(schedule: Schedule) -> datetime | None:
    """Return the time that the workers have computed; None if there is none, or if it is still to be computed."""
    found = schedule.next_at
    if found is None:
        return None
    return formatting.aware(found) if TO_BE_COMPUTED < formatting.aware(found) < NEVER else None


def state_of(schedule: Schedule, now: datetime, *, is_failing: bool = False) -> str:
    """Return one word, or two, for what the schedule does."""
    if not schedule.is_enabled:
        return DISABLED
    if schedule.paused_until is not None and formatting.aware(schedule.paused_until) > formatting.aware(now):
        return PAUSED
    if schedule.next_at is not None and formatting.aware(schedule.next_at) >= NEVER:
        return ENDED
    if schedule.task not in registry.tasks:
        return UNKNOWN_TASK
    return FAILING if is_failing else ENABLED


def condition(state: str, now: datetime) -> Q:
    """Return the condition of a query for schedules in a state; an unknown task and a failing one count as enabled."""
    paused, ended = Q(paused_until__gt=now), Q(next_at__gte=NEVER)
    on = Q(is_enabled=True)
    return {
        DISABLED: Q(is_enabled=False),
        PAUSED: on & paused,
        ENDED: on & ended & ~paused,
        ENABLED: on & ~paused & ~ended,
    }[state]


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


NUMBER_OF_TIMES = 5
Pair = tuple[str, Cell | str]


def sentence(schedule: Schedule, now: datetime) -> str:
    """Return ``nightly: send_report, every day at 04:00 (UTC); next at 2026-05-01 04:00:00 (in 5 h)``."""
    following = next(iter(coming(schedule, now, 1)), None)
    after = f"next at {formatting.both(following, now)}" if following else state_of(schedule, now)
    return f"{shown(schedule.name)}: {shown(schedule.task)}, {means(schedule)}; {after}"


def means(schedule: Schedule) -> str:
    """Return when the schedule fires, in words, also for a row that was written without the checks of the model."""
    try:
        return in_words(Definition.of(schedule))
    except (ValueError, GraphileWorkerError) as error:
        return f"cannot be read: {error}"


def coming(schedule: Schedule, now: datetime, number: int) -> list[datetime]:
    """Return the next times at which the schedule fires: none if it is disabled or cannot be read."""
    try:
        return list(schedule.next_times(number, after=now))
    except (ValueError, GraphileWorkerError):
        return []


def outcome(run: Run) -> str:
    """Return how the job of a run ended, with its error; empty for a run without a job."""
    if run.job_id is None:
        return ""
    error = (run.exception_class or "").rpartition(".")[2]
    return f"{run.outcome}: {error}" if error else str(run.outcome)


def in_its_zone(moment: datetime, schedule: Schedule) -> str:
    """Return a time in the time zone of its schedule, with the offset from UTC."""
    return formatting.aware(moment).astimezone(zone_or_utc(schedule.time_zone)).isoformat(sep=" ", timespec="seconds")


def state_cell(state: str, style: Style) -> Cell:
    paints = {
        ENABLED: style.SUCCESS,
        PAUSED: style.WARNING,
        UNKNOWN_TASK: style.ERROR,
        FAILING: style.ERROR,
    }
    return Cell(state, paints.get(state))


def facts(schedule: Schedule, now: datetime, style: Style, *, is_failing: bool = False) -> str:
    """Return everything that the schedule says, one fact on each line."""
    pairs: list[Pair] = [
        ("task", schedule.task),
        ("means", means(schedule)),
        ("state", state_cell(state_of(schedule, now, is_failing=is_failing), style)),
        *_options(schedule, now),
        ("last", formatting.both(schedule.last_tick, now)),
        ("last missed", formatting.both(schedule.last_missed_at, now)),
        ("changed", _changed(schedule, now)),
        *named_times("next", coming(schedule, now, NUMBER_OF_TIMES), now),
    ]
    kept = [(name, value) for name, value in pairs if value not in ("", "-")]
    return f"{style.MIGRATE_HEADING(shown(schedule.name))}\n{formatting.facts(kept, indent='  ')}"


def named_times(name: str, moments: list[datetime], now: datetime) -> list[Pair]:
    """Return a fact with several lines."""
    return [(name if index == 0 else " ", formatting.both(moment, now)) for index, moment in enumerate(moments)]


def _options(schedule: Schedule, now: datetime) -> list[Pair]:
    missed = schedule.missed
    if schedule.missed_within is not None:
        missed = f"{missed} within {interval_text(schedule.missed_within)}"
    return [
        ("payload", json.dumps(schedule.payload, ensure_ascii=False)),
        ("pattern", schedule.cron or ""),
        ("time zone", schedule.time_zone),
        ("starts", formatting.both(schedule.starts_at, now)),
        ("ends", formatting.both(schedule.ends_at, now)),
        ("paused until", _paused(schedule, now)),
        ("missed", missed),
        ("overlap", schedule.overlap),
        ("queue", schedule.queue_name or ""),
        ("priority", "" if schedule.priority is None else str(schedule.priority)),
        ("max attempts", "" if schedule.max_attempts is None else str(schedule.max_attempts)),
        ("job key", schedule.job_key or ""),
        ("description", schedule.description),
    ]


def _paused(schedule: Schedule, now: datetime) -> str:
    until = schedule.paused_until
    if until is None or formatting.aware(until) <= formatting.aware(now):
        return ""
    return "it is resumed" if formatting.aware(until) >= NEVER else formatting.both(until, now)


def _changed(schedule: Schedule, now: datetime) -> str:
    by = f" by {shown(schedule.changed_by)}" if schedule.changed_by else ""
    return f"{formatting.both(schedule.changed_at, now)}{by}"


def as_dict(schedule: Schedule, now: datetime, *, is_failing: bool = False) -> dict[str, Any]:
    """Return the schedule for programs: periods are seconds."""
    return {
        "id": schedule.pk,
        "name": schedule.name,
        "task": schedule.task,
        "payload": schedule.payload,
        "cron": schedule.cron,
        "interval_seconds": _seconds(schedule.interval),
        "run_at": schedule.run_at,
        "time_zone": schedule.time_zone,
        "means": means(schedule),
        "state": state_of(schedule, now, is_failing=is_failing),
        "starts_at": schedule.starts_at,
        "ends_at": schedule.ends_at,
        "queue_name": schedule.queue_name,
        "priority": schedule.priority,
        "max_attempts": schedule.max_attempts,
        "job_key": schedule.job_key,
        "missed": schedule.missed,
        "missed_within_seconds": _seconds(schedule.missed_within),
        "overlap": schedule.overlap,
        "is_enabled": schedule.is_enabled,
        "paused_until": schedule.paused_until,
        "description": schedule.description,
        "is_from_code": schedule.is_from_code,
        "changed_by": schedule.changed_by,
        "changed_at": schedule.changed_at,
        "created_at": schedule.created_at,
        "revision": schedule.revision,
        "last_tick": schedule.last_tick,
        "last_job_id": schedule.last_job_id,
        "last_missed_at": schedule.last_missed_at,
        "next": coming(schedule, now, NUMBER_OF_TIMES),
    }


def _seconds(period: timedelta | None) -> float | None:
    return None if period is None else period.total_seconds()
