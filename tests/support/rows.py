"""Rows as they are in the database, to compare with what the package returns."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import connection

from django_graphile_worker import Job, models


def stored(job: Job) -> models.Job:
    row: models.Job = models.Job.objects.select_related("task", "job_queue").get(pk=job.id)
    return row


def as_job(row: models.Job) -> Job:
    """Convert a row that the ORM has read, to compare it with what the API returned."""
    return Job(
        id=row.id,
        task_identifier=row.task.identifier,
        payload=row.payload,
        queue_name=row.job_queue.queue_name if row.job_queue else None,
        priority=row.priority,
        run_at=row.run_at,
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        last_error=row.last_error,
        created_at=row.created_at,
        updated_at=row.updated_at,
        key=row.key,
        locked_at=row.locked_at,
        locked_by=row.locked_by,
        revision=row.revision,
        flags=frozenset(row.flags or ()),
    )


def database_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("select now()")
        return cursor.fetchone()[0]  # type: ignore[no-any-return]


def query(statement: str, *parameters: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())


def in_quotes(name: str) -> str:
    """Quote a name for a statement: the name of a schema may have capitals."""
    return connection.ops.quote_name(name)
