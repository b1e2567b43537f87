"""The fields of the models over the worker schema."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.sql.compiler import SQLCompiler
from django.utils.translation import gettext_lazy as _

from django_graphile_worker import conf
from django_graphile_worker.payloads import decode_leniently
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
