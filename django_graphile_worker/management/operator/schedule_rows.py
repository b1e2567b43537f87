"""Schedules, and the recurring tasks of the code, for the verbs: how they are found, and their text and JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.core.management.base import CommandError
from django.db import DataError, IntegrityError
from django.db.models import QuerySet

from django_graphile_worker import conf, registry
from django_graphile_worker.crontab import CronItem, describe, upcoming
from django_graphile_worker.crontab.times import load_zone
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.management.operator import verb
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Values, aware, relative
from django_graphile_worker.management.operator.verb import Options
from django_graphile_worker.models import Schedule, changed_by
from django_graphile_worker.recurring import collect
from django_graphile_worker.routing import place_of
from django_graphile_worker.schedules.times import Definition
from django_graphile_worker.schedules.words import in_words
from django_graphile_worker.sql.schedules import from_code
from django_graphile_worker.sql.schedules.from_code import KnownCrontab
from django_graphile_worker.text import quoted, shown

PERIODS = ("interval", "missed_within")
# The definition of a schedule, in the order of a file.
FIELDS = (
    *("name", "description", "task", "payload", "cron", "interval", "run_at", "time_zone", "starts_at", "ends_at"),
    *("queue_name", "priority", "max_attempts", "job_key", "missed", "missed_within", "overlap"),
    *("is_enabled", "paused_until"),
)
ENABLED, PAUSED = "enabled", "paused"
# next_at is infinity if nothing will be fired; the model reads it as the last day of Python's calendar.
NEVER = datetime(9999, 1, 1, tzinfo=UTC)
NUMBER_OF_TIMES = 5


def is_of_models(console: Console) -> bool:
    """Return whether the model reads the schedules of the installation; any other one has only those of the code."""
    return console.settings.schema == conf.schema_of_models()


def schedules_of(console: Console) -> QuerySet[Schedule]:
    """Return the schedules of the installation."""
    schedules = Schedule.objects.using(place_of(**console.place).using)
    return schedules.all() if is_of_models(console) else schedules.none()


def database_of(console: Console) -> str:
    """Return the alias of the database; raise CommandError for an installation that the model does not read."""
    place = place_of(**console.place)
    if not is_of_models(console):
        raise CommandError(
            f"--installation: schedules are in the installation {conf.DEFAULT!r}; {place.installation!r} has another "
            f"schema."
        )
    return place.using


def find_all(console: Console, names: Sequence[str]) -> list[Schedule]:
    """Return the schedules of these names, each once; raise CommandError if one of them does not exist."""
    schedules = Schedule.objects.using(database_of(console))
    found = {schedule.name: schedule for schedule in schedules.filter(name__in=names)}
    for name in names:
        if name not in found:
            raise no_schedule(console, name)
    return [found[name] for name in dict.fromkeys(names)]


def no_schedule(console: Console, name: str) -> CommandError:
    way_out = "graphile_worker schedules lists the names."
    if name in {each.name for each in code_items(console)}:
        way_out = "It is a recurring task of the code, which can be shown, paused and resumed."
    return CommandError(f"There is no schedule {quoted(name)}. {way_out}")


@contextmanager
def changing(using: str, options: Options) -> Iterator[None]:
    """Open a transaction whose changes are recorded under the name of the person; report what the database refuses."""
    try:
        with changed_by(verb.name_of_user(options), using=using):
            yield
    except ValidationError as error:
        lines = [
            shown(text if name == NON_FIELD_ERRORS else f"{name}: {text}")
            for name, texts in error.message_dict.items()
            for text in texts
        ]
        raise CommandError("\n".join(lines)) from error
    except (DataError, IntegrityError) as error:
        first = str(error).partition("\n")[0]
        raise CommandError(f"The database refuses the schedule: {first}") from error


def state_of(schedule: Schedule, now: datetime, *, is_failing: bool = False) -> str:
    """Return one word, or two, for what the schedule does."""
    if not schedule.is_enabled:
        return "disabled"
    if schedule.paused_until is not None and aware(schedule.paused_until) > aware(now):
        return PAUSED
    if schedule.next_at is not None and aware(schedule.next_at) >= NEVER:
        return "ended"
    if schedule.task not in registry.tasks:
        return "unknown task"
    return "failing" if is_failing else ENABLED


def zone_or_utc(name: str) -> ZoneInfo:
    """Return a time zone, or UTC for a name that the validation of the schedule refuses."""
    try:
        return load_zone(name)
    except (ValueError, TypeError):
        return ZoneInfo("UTC")


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


def facts_of(about: Values, schedule: Schedule, now: datetime) -> dict[str, Any]:
    """Return the values of ``as_dict()`` for people: next times in the time zone of the schedule, with the offset."""
    zone, until = zone_or_utc(schedule.time_zone), about["paused_until"]
    following = [aware(each).astimezone(zone).isoformat(sep=" ", timespec="seconds") for each in about["next"]]
    times = zip(following, about["next"], strict=True)
    return {
        **about,
        "paused_until": "it is resumed" if until is not None and aware(until) >= NEVER else until,
        "next": [f"{text} ({relative(moment, now)})" for text, moment in times],
    }


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


class CodeItem(NamedTuple):
    """A recurring task: as the code has it, None for one of other projects, and as the database knows it."""

    name: str
    item: CronItem | None
    known: KnownCrontab | None

    @property
    def task(self) -> str | None:
        return self.item.task if self.item else None

    @property
    def state(self) -> str:
        return PAUSED if self.known is not None and self.known.is_paused else ENABLED

    def coming(self, after: datetime, number: int = NUMBER_OF_TIMES) -> list[datetime]:
        """Return the next times, in UTC; none for a paused item and one of other projects."""
        if self.item is None or self.state == PAUSED:
            return []
        return [moment.astimezone(UTC) for moment in upcoming(self.item, after, number)]

    def row(self, now: datetime) -> Values:
        """Return what a list says of it, by the same names as of a schedule."""
        return {
            "name": self.name,
            "task": self.task,
            "means": describe(self.item) if self.item else None,
            "state": self.state,
            "next": self.coming(now, 1),
            "last": self.known.last_execution if self.known else None,
            "from": "code" if self.item else "other code",
        }

    def as_dict(self, after: datetime, number: int = NUMBER_OF_TIMES) -> dict[str, Any]:
        if self.item is None:
            assert self.known is not None
            return dataclasses.asdict(self.known)
        return {
            "identifier": self.name,
            "task": self.item.task,
            "pattern": self.item.match if isinstance(self.item.match, str) else None,
            "means": describe(self.item),
            "time_zone": self.item.zone.key if self.item.zone else "UTC",
            "payload": self.item.payload,
            "backfill_seconds": self.item.period.total_seconds(),
            "known_since": self.known.known_since if self.known else None,
            "last_execution": self.known.last_execution if self.known else None,
            "is_paused": self.state == PAUSED,
            "next": self.coming(after, number),
        }


def code_items(console: Console) -> list[CodeItem]:
    """Return the recurring tasks of the code, and then those of other projects."""
    place = place_of(**console.place)
    items = collect(place.settings, with_tasks=place.installation == conf.DEFAULT)
    with console.reading() as (cursor, schema, _):
        known = from_code.known_items(cursor, schema=schema)
    own = [CodeItem(item.name, item, known.get(item.name)) for item in items]
    names = {each.name for each in own}
    return own + [CodeItem(name, None, each) for name, each in sorted(known.items()) if name not in names]
