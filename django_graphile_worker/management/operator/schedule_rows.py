"""Schedules for the verbs: finding and checking them, their fields, and schedules as text and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.core.management.base import CommandError
from django.core.management.color import Style
from django.db import DataError, IntegrityError
from django.db.models import QuerySet

from django_graphile_worker import conf, registry
from django_graphile_worker.crontab.times import load_zone
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.management.operator import formatting, verb
from django_graphile_worker.management.operator.code_items import (
    ENABLED,
    FAILING,
    PAUSED,
    UNKNOWN_TASK,
    code_items,
    state_cell,
)
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Value
from django_graphile_worker.management.operator.verb import Options, did_you_mean
from django_graphile_worker.models import Schedule, changed_by
from django_graphile_worker.routing import place_of
from django_graphile_worker.schedules.times import Definition
from django_graphile_worker.schedules.words import in_words, interval_text
from django_graphile_worker.text import quoted, shown

PERIODS = ("interval", "missed_within")
MOMENTS = ("run_at", "starts_at", "ends_at", "paused_until")
NUMBERS = ("priority", "max_attempts")
# A schedule has exactly one of these.
TIMES = ("cron", "interval", "run_at")
# The definition of a schedule, in the order of a file.
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


def is_of_models(console: Console) -> bool:
    """Return whether the model reads the schedules of the installation; any other one has only those of the code."""
    return place_of(**console.place).settings.schema == conf.schema_of_models()


def database_of(console: Console) -> str:
    """Return the alias of the database; raise CommandError for an installation that the model does not read."""
    place = place_of(**console.place)
    if not is_of_models(console):
        raise CommandError(
            f"--installation: schedules are in the installation {conf.DEFAULT!r}; {place.installation!r} has another "
            f"schema."
        )
    return place.using


def schedules_of(console: Console) -> QuerySet[Schedule]:
    """Return the schedules of the installation."""
    schedules = Schedule.objects.using(place_of(**console.place).using)
    return schedules.all() if is_of_models(console) else schedules.none()


def find_all(console: Console, names: Sequence[str]) -> list[Schedule]:
    """Return the schedules of these names, each once; raise CommandError if one of them does not exist."""
    schedules = Schedule.objects.using(database_of(console))
    found = {schedule.name: schedule for schedule in schedules.filter(name__in=names)}
    for name in names:
        if name not in found:
            raise no_schedule(console, name)
    return [found[name] for name in dict.fromkeys(names)]


def no_schedule(console: Console, name: str) -> CommandError:
    items = {each.name for each in code_items(console)}
    way_out = " It is a recurring task of the code, which can be shown, paused and resumed."
    if name not in items:
        known = schedules_of(console).values_list("name", flat=True)
        way_out = did_you_mean(name, {*known, *items}) or " graphile_worker schedules lists the names."
    return CommandError(f"There is no schedule {quoted(name)}.{way_out}")


def refuse_from_code(schedule: Schedule) -> None:
    """Raise CommandError for a schedule that workers write: they would write it again."""
    if schedule.is_from_code:
        raise CommandError(in_code(schedule))


def in_code(schedule: Schedule) -> str:
    return (
        f"{quoted(schedule.name)} is @task(every=...) in the code: change it there. Here it can be paused, resumed "
        f"and run."
    )


def errors_in(schedule: Schedule) -> dict[str, list[str]]:
    """Return the messages of the model by field; none for a valid schedule."""
    try:
        schedule.validate_definition()
    except ValidationError as error:
        return {name: [str(text) for text in texts] for name, texts in error.message_dict.items()}
    return {}


def refuse_errors(errors: dict[str, list[str]]) -> None:
    """Raise CommandError with every error."""
    lines = [
        shown(text if name == NON_FIELD_ERRORS else f"{name}: {text}")
        for name, texts in errors.items()
        for text in texts
    ]
    if lines:
        raise CommandError("\n".join(lines))


@contextmanager
def changing(using: str, options: Options) -> Iterator[None]:
    """Open a transaction whose changes are recorded under the name of the person; report what the database refuses."""
    try:
        with changed_by(verb.name_of_user(options), using=using):
            yield
    except ValidationError as error:
        refuse_errors(error.message_dict)
    except (DataError, IntegrityError) as error:
        first = str(error).partition("\n")[0]
        raise CommandError(f"The database refuses the schedule: {first}") from error


def defaults() -> dict[str, Any]:
    """Return the values of the fields that a definition may leave out."""
    usual = Schedule()
    return {name: getattr(usual, name) for name in FIELDS if name not in REQUIRED}


def is_same(name: str, one: Any, other: Any) -> bool:
    """Return whether two values of a field are the same; Python takes True for 1, JSON does not."""
    if name == "payload":
        return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    if name in MOMENTS and one is not None and other is not None:
        return formatting.aware(one) == formatting.aware(other)
    return bool(one == other)


# Schedules as text and JSON.

DISABLED, ENDED = "disabled", "ended"
# next_at is infinity if nothing will be fired; the model reads it as the last day of Python's calendar.
NEVER = datetime(9999, 1, 1, tzinfo=UTC)
NUMBER_OF_TIMES = 5


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


def zone_or_utc(name: str) -> ZoneInfo:
    """Return a time zone, or UTC for a name that the validation of the schedule refuses."""
    try:
        return load_zone(name)
    except (ValueError, TypeError):
        return ZoneInfo("UTC")


def parse_moment(text: str, *, zone: str, now: datetime) -> datetime:
    """Return a time of the command line: ``now``, ``+5m`` from now, or ISO 8601 in the time zone of a schedule."""
    moment = verb.parse_time(text, zone_or_utc(zone))
    try:
        return formatting.aware(now) + moment if isinstance(moment, timedelta) else moment
    except OverflowError:
        raise ValueError(f"expected {verb.EXPECTED_TIME}, got {quoted(text)}") from None


def in_its_zone(moment: datetime, schedule: Schedule) -> str:
    """Return a time in the time zone of its schedule, with the offset from UTC."""
    return formatting.aware(moment).astimezone(zone_or_utc(schedule.time_zone)).isoformat(sep=" ", timespec="seconds")


def means(schedule: Schedule) -> str:
    """Return when the schedule fires, in words, also for a row that was written without the checks of the model."""
    try:
        return in_words(Definition.of(schedule))
    except (ValueError, GraphileWorkerError) as error:
        return f"cannot be read: {error}"


def coming(schedule: Schedule, after: datetime, number: int = NUMBER_OF_TIMES) -> list[datetime]:
    """Return the next times at which the schedule fires: none if it is disabled or cannot be read."""
    try:
        return list(schedule.next_times(number, after=after))
    except (ValueError, GraphileWorkerError):
        return []


def sentence(schedule: Schedule, now: datetime) -> str:
    """Return ``nightly: send_report, every day at 04:00 (UTC); next at 2026-05-01 04:00:00 (in 5 h)``."""
    following = next(iter(coming(schedule, now, 1)), None)
    after = f"next at {formatting.both(following, now)}" if following else state_of(schedule, now)
    return f"{shown(schedule.name)}: {shown(schedule.task)}, {means(schedule)}; {after}"


def facts(schedule: Schedule, now: datetime, times: Sequence[datetime], style: Style, *, is_failing: bool) -> str:
    """Return everything that the schedule says, one fact on each line."""
    by = f" by {shown(schedule.changed_by)}" if schedule.changed_by else ""
    missed = schedule.missed
    if schedule.missed_within is not None:
        missed = f"{missed} within {interval_text(schedule.missed_within)}"
    pairs: list[tuple[str, Value]] = [
        ("task", schedule.task),
        ("means", means(schedule)),
        ("state", state_cell(state_of(schedule, now, is_failing=is_failing), style)),
        ("payload", json.dumps(schedule.payload, ensure_ascii=False)),
        ("pattern", schedule.cron),
        ("time zone", schedule.time_zone),
        ("starts", formatting.both(schedule.starts_at, now)),
        ("ends", formatting.both(schedule.ends_at, now)),
        ("paused until", _paused_until(schedule, now)),
        ("missed", missed),
        ("overlap", schedule.overlap),
        ("queue", schedule.queue_name),
        ("priority", schedule.priority),
        ("max attempts", schedule.max_attempts),
        ("job key", schedule.job_key),
        ("description", schedule.description),
        ("last", formatting.both(schedule.last_tick, now)),
        ("last missed", formatting.both(schedule.last_missed_at, now)),
        ("changed", f"{formatting.both(schedule.changed_at, now)}{by}"),
    ]
    kept = [(name, value) for name, value in pairs if value not in (None, "", formatting.EMPTY)]
    named = [f"{in_its_zone(moment, schedule)} ({formatting.relative(moment, now)})" for moment in times]
    kept += [("" if place else "next", moment) for place, moment in enumerate(named)]
    return f"{style.MIGRATE_HEADING(shown(schedule.name))}\n{formatting.facts(kept, indent='  ')}"


def _paused_until(schedule: Schedule, now: datetime) -> str:
    until = schedule.paused_until
    if until is None or formatting.aware(until) <= formatting.aware(now):
        return ""
    return "it is resumed" if formatting.aware(until) >= NEVER else formatting.both(until, now)


def as_dict(
    schedule: Schedule, now: datetime, times: Sequence[datetime] | None = None, *, is_failing: bool = False
) -> dict[str, Any]:
    """Return the schedule for programs: periods are seconds."""
    stored = (
        *(name for name in FIELDS if name not in PERIODS),
        *("is_from_code", "changed_by", "changed_at", "created_at", "revision"),
        *("last_tick", "last_job_id", "last_missed_at"),
    )
    return {
        "id": schedule.pk,
        **{name: getattr(schedule, name) for name in stored},
        "interval_seconds": None if schedule.interval is None else schedule.interval.total_seconds(),
        "missed_within_seconds": None if schedule.missed_within is None else schedule.missed_within.total_seconds(),
        "means": means(schedule),
        "state": state_of(schedule, now, is_failing=is_failing),
        "next": coming(schedule, now) if times is None else times,
    }
