"""Unmanaged, read-only models over the worker schema, and their fields.

They are for reading, filtering and joining. Only the SQL functions write rows, because a correct change also concerns
locks, keys and notifications.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from django.db import models
from django.db.models.sql.compiler import SQLCompiler
from django.utils.translation import gettext_lazy as _

from django_graphile_worker import conf
from django_graphile_worker.exceptions import ReadOnlyModelError
from django_graphile_worker.payloads import decode_leniently
from django_graphile_worker.sql import statements
from django_graphile_worker.sql.codecs import as_text, within_python_years
from django_graphile_worker.sql.workers import worker_of_column


class PayloadField(models.Field):  # type: ignore[type-arg]
    """A column of type json, read as text: one value that cannot be decoded must not fail the whole query."""

    description = _("JSON (not jsonb)")

    def db_type(self, connection: Any) -> str:
        return "json"

    def select_format(self, compiler: SQLCompiler, sql: str, params: Any) -> tuple[str, Any]:
        return as_text(sql), params

    def from_db_value(self, value: str | None, expression: object, connection: object) -> Any:
        return None if value is None else decode_leniently(value)


class TimestampField(models.DateTimeField):  # type: ignore[type-arg]
    """A timestamptz whose infinities are read as the first or the last day that Python can represent."""

    def select_format(self, compiler: SQLCompiler, sql: str, params: Any) -> tuple[str, Any]:
        return within_python_years(sql), tuple(params) * 3


class WorkerField(models.TextField):  # type: ignore[type-arg]
    """The column ``locked_by``: read and matched as the worker's id, without the number of the claim."""

    def select_format(self, compiler: SQLCompiler, sql: str, params: Any) -> tuple[str, Any]:
        return worker_of_column(sql, schema=conf.schema_of_models()), params

    def deconstruct(self) -> Any:
        """Return a TextField for migrations, which is what the column is."""
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.TextField", args, kwargs


class _OfWorker:
    """A lookup whose left side is the worker's id."""

    def process_lhs(self, *args: Any, **kwargs: Any) -> tuple[str, Any]:
        sql, params = super().process_lhs(*args, **kwargs)  # type: ignore[misc]
        return worker_of_column(sql, schema=conf.schema_of_models()), params


@WorkerField.register_lookup
class _IsWorker(_OfWorker, models.lookups.Exact):
    pass


@WorkerField.register_lookup
class _InWorkers(_OfWorker, models.lookups.In):
    pass


def table(name: str) -> str:
    """Return the db_table of a table in the worker schema; migrations call it too."""
    return statements.table(name, conf.schema_of_models())


class ReadOnlyQuerySet(models.QuerySet[Any]):
    """A queryset that refuses to write; the error names the functions to use instead."""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ReadOnlyModelError(
            f"{self.model.__name__} rows are read-only: a write without the functions of the schema would break the "
            f"workers' locks. {self.model.way_to_write}"
        )

    create = update = delete = bulk_create = bulk_update = get_or_create = update_or_create = _refuse
    acreate = aupdate = adelete = abulk_create = abulk_update = aget_or_create = aupdate_or_create = _refuse
    _raw_delete = _insert = _update = _refuse


class ReadOnlyModel(models.Model):
    """A table of the worker schema."""

    way_to_write: ClassVar[str] = ""

    objects = ReadOnlyQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        type(self).objects.all()._refuse()

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        type(self).objects.all()._refuse()


class Task(ReadOnlyModel):
    """A task identifier that a job has had, or that migrate or a worker has registered."""

    way_to_write = "add_job(), migrate and workers insert identifiers, and cleanup() deletes them."

    id = models.IntegerField(primary_key=True)
    identifier = models.TextField(unique=True)

    class Meta:
        managed = False
        db_table = table("_private_tasks")
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
        # No page needs a permission.
        default_permissions = ()

    def __str__(self) -> str:
        return self.identifier


class JobQueue(ReadOnlyModel):
    """A named queue: its jobs run one at a time."""

    way_to_write = "add_job() inserts queues, force_unlock_workers() unlocks them, and cleanup() deletes them."

    id = models.IntegerField(primary_key=True)
    queue_name = models.TextField(unique=True)
    locked_at = TimestampField(null=True)
    locked_by = WorkerField(null=True)
    is_available = models.BooleanField()

    class Meta:
        managed = False
        db_table = table("_private_job_queues")
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.queue_name


class Job(ReadOnlyModel):
    """A job that waits, runs, or has permanently failed; a job that succeeded is deleted."""

    way_to_write = (
        "Use add_job(), add_jobs(), remove_job(), complete_jobs(), permanently_fail_jobs(), reschedule_jobs() or "
        "cancel_jobs()."
    )

    id = models.BigIntegerField(primary_key=True)
    job_queue = models.ForeignKey(
        JobQueue, models.DO_NOTHING, null=True, db_constraint=False, db_index=False, related_name="jobs"
    )
    task = models.ForeignKey(Task, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="jobs")
    payload = PayloadField()
    priority = models.SmallIntegerField()
    run_at = TimestampField()
    attempts = models.SmallIntegerField()
    max_attempts = models.SmallIntegerField()
    last_error = models.TextField(null=True)  # noqa: DJ001 - the column is null when there was none
    created_at = TimestampField()
    updated_at = TimestampField()
    key = models.TextField(null=True, unique=True)  # noqa: DJ001 - the column is null without a key
    locked_at = TimestampField(null=True)
    locked_by = WorkerField(null=True)
    revision = models.IntegerField()
    flags = models.JSONField(null=True)
    is_available = models.BooleanField()

    class Meta:
        managed = False
        db_table = table("_private_jobs")
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        default_permissions = ("add", "view")
        permissions = [
            ("view_payload", "Can see payloads and results, and errors unredacted"),
            ("reschedule_job", "Can run and reschedule jobs"),
            ("complete_job", "Can fail and delete jobs"),
            ("cancel_job", "Can cancel jobs, also while they run"),
        ]

    def __str__(self) -> str:
        return f"{self.task.identifier} #{self.pk}"


class KnownCrontab(ReadOnlyModel):
    """A crontab item that a worker has seen, and when it last fired."""

    way_to_write = "Workers write known crontabs; 'manage.py graphile_worker schedules' pauses and resumes them."

    identifier = models.TextField(primary_key=True)
    known_since = TimestampField()
    last_execution = TimestampField(null=True)

    class Meta:
        managed = False
        db_table = table("_private_known_crontabs")
        verbose_name = _("known crontab")
        verbose_name_plural = _("known crontabs")
        # The page of recurring tasks has permissions of its own.
        default_permissions = ()

    def __str__(self) -> str:
        return self.identifier


class Worker(ReadOnlyModel):
    """A registered worker process, and the time of its last heartbeat."""

    way_to_write = "Each worker writes its own row; force_unlock_workers() unlocks the jobs of workers that have ended."

    id = models.TextField(primary_key=True)
    last_heartbeat_at = TimestampField()
    started_at = TimestampField()
    metadata = models.JSONField()

    class Meta:
        managed = False
        db_table = table("_private_workers")
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        default_permissions = ("view",)
        permissions = [("unlock_worker", "Can force-unlock the jobs and queues of workers")]

    def __str__(self) -> str:
        return self.pk
