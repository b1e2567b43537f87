"""Schedules that people and programs define in the database."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Self

from django.core.exceptions import ValidationError
from django.db import connections, models, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_graphile_worker import conf, registry, simulation
from django_graphile_worker.conf import chosen_backends
from django_graphile_worker.crontab.describe import Phrases
from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.models.tables import TimestampField, table
from django_graphile_worker.payloads import encode
from django_graphile_worker.recurring import job_of, received
from django_graphile_worker.routing import queue_alias
from django_graphile_worker.schedules.times import Definition, first_time, next_times
from django_graphile_worker.schedules.validation import errors_in
from django_graphile_worker.schedules.words import in_words, parse_interval
from django_graphile_worker.sql.events import INFORMATION, NewEvent
from django_graphile_worker.sql.events import add as add_event
from django_graphile_worker.sql.schedules import changes, firing
from django_graphile_worker.sql.schedules.changes import FOREVER
from django_graphile_worker.sql.schedules.runs import Run, runs_of_schedules

# The fields of a definition.
DEFINED = (
    "name", "task", "payload", "cron", "interval", "run_at", "time_zone", "starts_at", "ends_at", "queue_name",
    "priority", "max_attempts", "job_key", "missed", "missed_within", "overlap", "paused_until", "description",
)  # fmt: skip
PHRASES = ("interval", "missed_within")
# What the database and the workers write.
OF_THE_DATABASE = (
    "changed_by",
    "created_at",
    "changed_at",
    "revision",
    "anchor_at",
    "counts_from",
    "next_at",
    "last_tick",
    "last_job_id",
    "last_missed_at",
)


@contextmanager
def changed_by(by: str, *, using: str | None = None) -> Iterator[None]:
    """Note who changes schedules in the block: ``with changed_by("maria"): schedule.save()``.

    The block is a transaction. Without it, or with an empty name, the change is that of a program.
    """
    alias = queue_alias(using)
    with transaction.atomic(using=alias):
        with connections[alias].cursor() as cursor:
            before = changes.set_changed_by(cursor, by)
        yield
        with connections[alias].cursor() as cursor:
            changes.set_changed_by(cursor, before)


@contextmanager
def at_simulated_time(alias: str) -> Iterator[None]:
    """Have the changes of the block made at the time of the clock of a test; without a clock, do nothing."""
    if simulation.now is None:
        yield
        return
    with connections[alias].cursor() as cursor:
        changes.set_now(cursor, simulation.now())
    simulation.has_new_schedules = True
    try:
        yield
    finally:
        # In a transaction that failed, the setting ends with it.
        if not connections[alias].needs_rollback:
            with connections[alias].cursor() as cursor:
                changes.set_now(cursor, None)


def find_task(identifier: str) -> registry.Task[Any, Any] | None:
    """Return a registered task or a Django task; None if this project has no such task, or cannot load it."""
    found = registry.tasks.get(identifier)
    if found is not None or not chosen_backends():
        return found
    # Late import: only projects with Django tasks have the backend, which is above this layer.
    from django_graphile_worker.backend.runnable import find_runnable

    try:
        return find_runnable(identifier)
    except (Exception, SystemExit):
        # The module of a task may raise anything when it is imported.
        return None


class ScheduleQuerySet(models.QuerySet["Schedule"]):
    """Schedules in the database of the jobs, unless ``using()`` says otherwise."""

    @property
    def db(self) -> str:
        chosen: str | None = self._db  # type: ignore[attr-defined]
        return chosen or queue_alias()

    def bulk_create(self, objs: Iterable[Schedule], *args: Any, **kwargs: Any) -> list[Schedule]:
        """Create schedules with one statement; raise ValidationError for the first that is not valid."""
        schedules = list(objs)
        for schedule in schedules:
            schedule.validate_definition()
        with at_simulated_time(self.db):
            return super().bulk_create(schedules, *args, **kwargs)

    def update(self, **values: Any) -> int:
        """Change schedules. Only the database checks the values."""
        with at_simulated_time(self.db):
            return super().update(**values)


class Schedule(models.Model):
    """A recurring or single task that people and programs define in the database.

    Exactly one of ``cron``, ``interval`` and ``run_at`` says when it fires. Workers write those of tasks with
    ``@task(every=...)``, for which ``is_from_code`` is true. The fields from ``changed_by`` on belong
    to the database and the workers: what is saved in them is ignored.
    """

    FOREVER = FOREVER
    # The task that the row has in the database: it stays valid, though this process may not know it.
    _former_task: str | None = None

    class Missed(models.TextChoices):
        SKIP = "skip", _("Skip them")
        ONCE = "once", _("Run once")
        ALL = "all", _("Run all of them within a time")

    class Overlap(models.TextChoices):
        ALLOW = "allow", _("Run both")
        SKIP = "skip", _("Skip the new run")
        QUEUE = "queue", _("Run one after the other")

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(_("name"), max_length=200, unique=True)
    task = models.CharField(_("task"), max_length=128)
    payload = models.JSONField(_("payload"), default=dict, blank=True)
    cron = models.TextField(_("cron line"), null=True, blank=True)  # noqa: DJ001 - null if it is not a cron line
    interval = models.DurationField(_("interval"), null=True, blank=True)
    run_at = models.DateTimeField(_("run at"), null=True, blank=True)
    time_zone = models.CharField(_("time zone"), max_length=64, default="UTC")
    starts_at = models.DateTimeField(_("starts at"), null=True, blank=True)
    ends_at = models.DateTimeField(_("ends at"), null=True, blank=True)
    queue_name = models.TextField(_("queue"), null=True, blank=True)  # noqa: DJ001 - null: what the task says
    priority = models.SmallIntegerField(_("priority"), null=True, blank=True)
    max_attempts = models.SmallIntegerField(_("maximum attempts"), null=True, blank=True)
    job_key = models.TextField(_("job key"), null=True, blank=True)  # noqa: DJ001 - null: what the task says
    missed = models.CharField(_("missed times"), max_length=4, choices=Missed, default=Missed.SKIP)
    missed_within = models.DurationField(_("missed within"), null=True, blank=True)
    overlap = models.CharField(_("overlap"), max_length=5, choices=Overlap, default=Overlap.ALLOW)
    is_enabled = models.BooleanField(_("enabled"), default=True)
    paused_until = models.DateTimeField(_("paused until"), null=True, blank=True)
    description = models.TextField(_("description"), default="", blank=True)
    changed_by = models.TextField(_("changed by"), default="", editable=False)
    is_from_code = models.BooleanField(default=False, editable=False)
    created_at = models.DateTimeField(null=True, editable=False)
    changed_at = models.DateTimeField(null=True, editable=False)
    revision = models.IntegerField(null=True, editable=False)
    anchor_at = models.DateTimeField(null=True, editable=False)
    counts_from = models.DateTimeField(null=True, editable=False)
    next_at = TimestampField(null=True, editable=False)
    last_tick = models.DateTimeField(null=True, editable=False)
    last_job_id = models.BigIntegerField(null=True, editable=False)
    last_missed_at = models.DateTimeField(null=True, editable=False)

    objects = ScheduleQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = table("_private_schedules")
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        permissions = [
            ("run_schedule", "Can run schedules now"),
            ("pause_schedule", "Can pause and resume schedules"),
        ]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the definition; raise ValidationError if it is not valid. Workers use it within two seconds."""
        kwargs["using"] = using = self._alias(kwargs.get("using"))
        self.validate_definition()
        if self._state.adding:
            # A copy of a schedule of the code: workers would delete it.
            self.is_from_code = False
        with at_simulated_time(using):
            super().save(*args, **kwargs)
        self._former_task = self.task
        self.refresh_from_db(using=using, fields=OF_THE_DATABASE)

    @property
    def is_in_code(self) -> bool:
        """Whether a task of this project has it in its code: workers would write it again."""
        return self.is_from_code and self.name in registry.tasks.every()

    @property
    def is_paused(self) -> bool:
        """Whether it fires nothing at present, because it is paused."""
        return self.paused_until is not None and _aware(self.paused_until) > _now()

    @property
    def is_paused_forever(self) -> bool:
        """Whether it fires nothing until it is resumed."""
        return self.paused_until is not None and _aware(self.paused_until) >= FOREVER

    @classmethod
    def from_db(cls, db: str | None, field_names: Collection[str], values: Collection[Any], **more: Any) -> Self:
        schedule = super().from_db(db, field_names, values, **more)
        schedule._former_task = schedule.__dict__.get("task")
        return schedule

    def validate_definition(self) -> None:
        """Raise ValidationError with the errors by field, if the definition is not valid; parse its durations.

        The task must be one that this process knows, unless the schedule has it already: another project that shares
        the database may have it.
        """
        _take_python_values(self)
        values = {name: _with_time_zone(getattr(self, name)) for name in DEFINED}
        if values["paused_until"] == FOREVER:
            # A pause without an end is no time that people choose.
            values["paused_until"] = None
        is_known = self.task == self._former_task or find_task(self.task) is not None
        errors = errors_in(
            values,
            tasks=None if is_known else registry.tasks.identifiers(),
            now=_now() if self._state.adding and self.is_enabled else None,
        )
        if errors:
            raise ValidationError(errors)
        for name in PHRASES:
            if isinstance(values[name], str):
                setattr(self, name, parse_interval(values[name]))

    def in_words(self, phrases: Phrases | None = None) -> str:
        """Describe when it fires: "Every weekday at 09:00 (Europe/Berlin)". ``phrases`` translates it."""
        return in_words(Definition.of(self)) if phrases is None else in_words(Definition.of(self), phrases)

    def next_times(self, number: int = 5, after: datetime | None = None) -> Sequence[datetime]:
        """Return the next times at which it fires; none if it is disabled. A pause is left out."""
        if not self.is_enabled or self.is_paused_forever:
            return ()
        definition, begin = Definition.of(self), _now() if after is None else _aware(after)
        paused_until = None if self.paused_until is None else _aware(self.paused_until)
        first = first_time(definition, counts_from=begin, paused_until=paused_until)
        return () if first is None else (first, *next_times(definition, first, number - 1))

    def run_now(self, *, by: str = "") -> int:
        """Add a job at once, whatever the times are; return its id.

        The job is that of a tick: with the payload and the options that the schedule has in the database.
        """
        alias, schema = self._alias(None), conf.schema_of_models()
        saved = type(self).objects.using(alias).get(pk=self.pk)
        payload = json.dumps(saved.payload)
        job = job_of(saved, Definition.of(saved), find_task(saved.task), payload=payload, at=_now())
        (job,) = received((job,), saved.task, payload, database=alias)
        simulated = None if simulation.now is None else simulation.now()
        with connections[alias].cursor() as cursor:
            job_id = firing.run_by_hand(cursor, saved.pk, job, by=by, schema=schema, now=simulated)
        if job_id is None:
            raise type(self).DoesNotExist(f"The schedule {saved.name!r} was deleted at this moment.")
        return job_id

    def runs(self, number: int = 20) -> list[Run]:
        """Return the last runs, the latest first: what became of each tick, and of each run by hand."""
        now = None if simulation.now is None else simulation.now()
        with connections[self._alias(None)].cursor() as cursor:
            found = runs_of_schedules(cursor, [self.pk], schema=conf.schema_of_models(), number=number, now=now)
        return found[self.pk]

    def pause(self, until: datetime | None = None, *, by: str = "") -> None:
        """Fire nothing until a time, or until ``resume()``. Runs that have begun are not stopped."""
        self._set_pause(FOREVER if until is None else until, by)

    def resume(self, *, by: str = "") -> None:
        """Fire again from now on. What was due during the pause is not fired."""
        self._set_pause(None, by)

    def _set_pause(self, until: datetime | None, by: str) -> None:
        alias = self._alias(None)
        with changed_by(by, using=alias):
            changed = type(self).objects.using(alias).filter(pk=self.pk).update(paused_until=until)
            if not changed:
                raise type(self).DoesNotExist(f"The schedule {self.name!r} was deleted.")
            self.refresh_from_db(using=alias, fields=["paused_until", *OF_THE_DATABASE])
            self.note_pause(until, by=by, using=alias)

    def note_pause(self, until: datetime | None, *, by: str, using: str) -> None:
        """Write the event about a pause, or about its end; ``pause()`` and ``resume()`` do that."""
        event = NewEvent(
            kind="schedule_resumed" if until is None else "schedule_paused",
            severity=INFORMATION,
            subject=self.name,
            details={
                "name": self.name,
                "schedule": self.pk,
                "until": None if until is None or until is FOREVER else _aware(until).isoformat(),
                "by": by or None,
            },
        )
        with connections[using].cursor() as cursor:
            add_event(cursor, event, schema=conf.schema_of_models())

    def _alias(self, using: str | None) -> str:
        return using or self._state.db or queue_alias()


def _now() -> datetime:
    return _aware(timezone.now())


def _aware(moment: datetime) -> datetime:
    """Return a time of a project without ``USE_TZ`` as an aware time."""
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def _with_time_zone(value: Any) -> Any:
    return _aware(value) if isinstance(value, datetime) else value


def _take_python_values(schedule: Schedule) -> None:
    """Replace a task by its identifier and an instance of a dataclass or model by its fields, as ``add_job()`` does."""
    if isinstance(schedule.task, registry.Task):
        schedule.task = schedule.task.identifier
    if not isinstance(schedule.payload, dict | list | str | int | float | None):
        try:
            schedule.payload = json.loads(encode(schedule.payload, max_size=conf.current().max_payload_size))
        except PayloadError as error:
            raise ValidationError({"payload": [str(error)]}) from error
