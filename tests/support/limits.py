"""Rows of limits: keys, lanes, parked jobs and places, written directly to the tables."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connections

from tests.support.factories import make_job, minutes_ago


def make_key(limit_name: str, key_text: str, *, using: str = "default", **columns: Any) -> int:
    """Insert a key, and return its id."""
    return _insert("_private_limit_keys", using, limit_name=limit_name, key_text=key_text, **columns)


def park_job(
    key_id: int,
    task_identifier: str = "task",
    *,
    run_at: datetime | None = None,
    blocked_at: datetime | None = None,
    using: str = "default",
    **columns: Any,
) -> int:
    """Insert a job that is parked in a lane of its own, which waits for the key; return the id of the job."""
    run_at = run_at or minutes_ago(10)
    job_id = make_job(task_identifier, using=using, run_at="infinity", **columns)
    (task_id, queue_id, priority, revision) = _row(
        "select task_id, coalesce(job_queue_id, 0), priority, revision from {schema}._private_jobs where id = %(id)s",
        {"id": job_id},
        using,
    )
    lane_id = _insert(
        "_private_limit_lanes",
        using,
        task_id=task_id,
        # With a key of its own, so that no two lanes are the same.
        key_ids=[-job_id, key_id],
        queue_id=queue_id,
        flags="{}",
        state=2,
        blocked_by=key_id,
        blocked_at=blocked_at or minutes_ago(5),
        priority=priority,
        head_run_at=run_at,
        head_id=job_id,
        turn=run_at,
        sorted_at=minutes_ago(5),
    )
    _insert(
        "_private_limited_jobs",
        using,
        returning="job_id",
        job_id=job_id,
        lane_id=lane_id,
        task_id=task_id,
        priority=priority,
        run_at=run_at,
        revision=revision,
    )
    return job_id


def run_job(key_id: int, task_identifier: str = "task", *, token: str = "worker-1/1", using: str = "default") -> int:
    """Insert a job that runs and has a place of the key; return its id."""
    job_id = make_job(task_identifier, using=using, locked_by=token, attempts=1)
    place = {"key_id": key_id, "job_id": job_id, "token": token, "taken_at": minutes_ago(1)}
    _insert("_private_limit_places", using, returning="job_id", **place)
    return job_id


def _insert(table: str, using: str, *, returning: str = "id", **row: Any) -> int:
    names, values = ", ".join(row), ", ".join(f"%({name})s" for name in row)
    statement = f"insert into {{schema}}.{table} ({names}) values ({values}) returning {returning}"
    return int(_row(statement, row, using)[0])


def _row(statement: str, parameters: dict[str, Any], using: str) -> Any:
    with connections[using].cursor() as cursor:
        quoted = connections[using].ops.quote_name(settings.GRAPHILE_WORKER["SCHEMA"])
        cursor.execute(statement.format(schema=quoted), parameters)
        return cursor.fetchone()
