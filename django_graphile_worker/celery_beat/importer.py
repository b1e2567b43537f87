"""Reads the periodic tasks of django-celery-beat, and creates and updates schedules."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connections

from django_graphile_worker import registry
from django_graphile_worker.celery_beat.translation import (
    KINDS,
    BeatRow,
    Target,
    TaskTable,
    Translation,
    Unsupported,
    beat_row,
    translate,
)
from django_graphile_worker.conf import chosen_backends
from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.models import Schedule, changed_by
from django_graphile_worker.models.schedules import find_task
from django_graphile_worker.schedules.validation import errors_in
from django_graphile_worker.sql import celery_beat

# Who changed a schedule that the import made, as long as no person has changed it since.
IMPORTED_BY = "import_celery_beat"
# Beat adds this task itself, for the results of Celery.
CLEANUP = "celery.backend_cleanup"


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a periodic task: ``created``, ``updated``, ``unchanged``, ``kept`` or ``left out``."""

    name: str
    outcome: str
    reason: str = ""
    notes: tuple[str, ...] = ()
    values: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a call of the import chooses."""

    tasks: Mapping[str, Target | None]
    missed: str = "once"
    catches_up: bool = False
    overwrites: bool = False
    is_dry_run: bool = False


def read_rows(alias: str) -> list[BeatRow]:
    """Return the periodic tasks of a database, in the order of their names; raise ConfigurationError without tables."""
    connection = connections[alias]
    tables = set(connection.introspection.table_names())
    if celery_beat.TABLE not in tables:
        raise ConfigurationError(
            f"The database {alias!r} has no tables of django-celery-beat: name their database with --from."
        )
    with connection.cursor() as cursor:
        # Versions before 2.0 have no table of clocked schedules.
        schedules = {
            kind: celery_beat.schedules_of(cursor, kind) if celery_beat.TABLES[kind] in tables else {} for kind in KINDS
        }
        return [beat_row(row, schedules) for row in celery_beat.periodic_tasks(cursor)]


def import_rows(rows: list[BeatRow], choices: Choices, *, now: datetime, using: str) -> list[Imported]:
    """Create and update schedules, in one transaction; with a dry run, only report what would become of the rows."""
    table = TaskTable(choices.tasks, _KnownTasks(), {row.task for row in rows})
    existing = {schedule.name: schedule for schedule in Schedule.objects.using(using).all()}
    with nullcontext() if choices.is_dry_run else changed_by(IMPORTED_BY, using=using):
        importer = _Importer(table, choices, existing, now, using)
        return [importer.imported(row) for row in rows]


class _KnownTasks(tuple[str, ...]):
    """The tasks of this project: its registered tasks, and Django tasks, which are found by their paths."""

    __slots__ = ()

    def __new__(cls) -> _KnownTasks:
        return super().__new__(cls, registry.tasks.identifiers())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and find_task(name) is not None


@dataclass(frozen=True, slots=True)
class _Importer:
    table: TaskTable
    choices: Choices
    existing: Mapping[str, Schedule]
    now: datetime
    using: str

    def imported(self, row: BeatRow) -> Imported:
        existing = self.existing.get(row.name)
        try:
            if row.task == CLEANUP and CLEANUP not in self.choices.tasks:
                raise Unsupported("it is Celery's own task, which deletes results of Celery")
            translation = self._translation(row, existing)
        except Unsupported as error:
            reason = str(error)
            return Imported(row.name, "left out" if existing is None else "kept", reason)
        if existing is None:
            self._create(row, translation)
            return Imported(row.name, "created", "", translation.notes, translation.values)
        return self._updated(existing, translation)

    def _translation(self, row: BeatRow, existing: Schedule | None) -> Translation:
        target = self.table.target(row.task)
        found = translate(row, target, now=self.now, is_django_task=_is_django_task(target.task))
        found.values["missed"] = self.choices.missed
        if found.is_computed_time and existing is not None and existing.run_at is not None:
            found.values["run_at"] = existing.run_at
        is_new = existing is None and found.values["is_enabled"]
        errors = errors_in(found.values, now=self.now if is_new else None)
        if errors:
            texts = [f"{field}: {text}" for field, of_field in errors.items() for text in of_field]
            raise Unsupported("; ".join(texts))
        return found

    def _create(self, row: BeatRow, translation: Translation) -> None:
        if self.choices.is_dry_run:
            return
        schedule = Schedule(**translation.values)
        schedule.save(using=self.using, force_insert=True)
        moments = {
            "anchor_at": translation.anchor_at,
            "counts_from": row.last_run_at if self.choices.catches_up else None,
        }
        given = {name: moment for name, moment in moments.items() if moment is not None}
        if given:
            # The trigger, which sets these columns itself, does not run for an update of nothing else.
            Schedule.objects.using(self.using).filter(pk=schedule.pk).update(**given)

    def _updated(self, existing: Schedule, translation: Translation) -> Imported:
        name, values = existing.name, translation.values
        changed = {field: value for field, value in values.items() if getattr(existing, field) != value}
        if not changed:
            return Imported(name, "unchanged", "", translation.notes, values)
        if existing.changed_by != IMPORTED_BY and not self.choices.overwrites:
            return Imported(name, "kept", _kept(existing), translation.notes, values)
        if not self.choices.is_dry_run:
            for field, value in changed.items():
                setattr(existing, field, value)
            existing.save(using=self.using, update_fields=list(changed))
        return Imported(name, "updated", ", ".join(changed), translation.notes, values)


def _kept(existing: Schedule) -> str:
    if existing.changed_by:
        return f"{existing.changed_by} has changed it since; --overwrite replaces it"
    return "a schedule of this name exists that was not imported; --overwrite replaces it"


def _is_django_task(name: str) -> bool:
    """Return whether a task is one of Django Tasks, whose payload has ``args`` and ``kwargs``."""
    if not chosen_backends():
        return False
    # Late import: only projects with Django tasks have the backend.
    from django_graphile_worker.backend.runnable import RunnableTask

    return isinstance(find_task(name), RunnableTask)
