"""Rows in any state, written directly to the tables."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connections

_numbers = itertools.count(1)


def _too_deep() -> str:
    """Return JSON that PostgreSQL accepts and Python does not: deeply nested, or for newer Pythons a long number."""
    deep = "[" * 3000 + "]" * 3000
    try:
        json.loads(deep)
    except RecursionError:
        return deep
    return "[" + "9" * 5000 + "]"


TOO_DEEP = _too_deep()


def minutes_ago(minutes: float) -> datetime:
    """Return a time in the past, or with a negative number in the future."""
    return datetime.now(UTC) - timedelta(minutes=minutes)


def make_task(identifier: str = "task", *, using: str = "default") -> int:
    """Insert a task identifier unless it exists, and return its id."""
    return _named_row("_private_tasks", "identifier", identifier, using)


def make_queue(
    queue_name: str = "queue",
    *,
    locked_by: str | None = None,
    locked_at: datetime | None = None,
    using: str = "default",
) -> int:
    """Insert a queue unless it exists, locked if a worker is named, and return its id."""
    queue_id = _named_row("_private_job_queues", "queue_name", queue_name, using)
    if locked_by is not None:
        locked = {"locked_by": locked_by, "locked_at": locked_at or minutes_ago(0), "id": queue_id}
        _execute(
            "update {schema}._private_job_queues set locked_by = %(locked_by)s, locked_at = %(locked_at)s"
            " where id = %(id)s",
            locked,
            using,
        )
    return queue_id


def make_job(task_identifier: str = "task", payload: Any = None, *, using: str = "default", **columns: Any) -> int:
    """Insert a job with these columns (`queue_name` is allowed) and defaults for the others, and return its id."""
    queue_name = columns.pop("queue_name", None)
    row = {"task_id": make_task(task_identifier, using=using), "payload": json.dumps(payload or {}), **columns}
    if queue_name is not None:
        row["job_queue_id"] = make_queue(queue_name, using=using)
    if row.get("locked_by") is not None:
        row.setdefault("locked_at", minutes_ago(0))
    if isinstance(row.get("flags"), dict):
        row["flags"] = json.dumps(row["flags"])
    names, values = ", ".join(row), ", ".join(f"%({name})s" for name in row)
    return _execute(f"insert into {{schema}}._private_jobs ({names}) values ({values}) returning id", row, using)


def make_failed_job(task_identifier: str = "task", *, error: str = "It broke.", **columns: Any) -> int:
    """Insert a permanently failed job: it has used all its attempts."""
    failed: dict[str, Any] = {"attempts": 25, "max_attempts": 25, "last_error": error}
    return make_job(task_identifier, **(failed | columns))


def cancel_claimed(job_id: int, kind: str, *, using: str = "default") -> None:
    """Cancel a job that a worker has claimed, as removing it or replacing it by its key does."""
    _execute(
        "insert into {schema}._private_cancellations (job_id, locked_by, kind, attempts, job_key)"
        " select id, locked_by, %(kind)s, attempts, key from {schema}._private_jobs where id = %(id)s",
        {"id": job_id, "kind": kind},
        using,
    )
    _execute(
        "update {schema}._private_jobs set key = null, attempts = max_attempts, updated_at = now() where id = %(id)s",
        {"id": job_id},
        using,
    )


def unique(word: str) -> str:
    """Return a name that no other test of this process has used."""
    return f"{word}_{next(_numbers)}"


def _named_row(table: str, column: str, name: str, using: str) -> int:
    _execute(
        f"insert into {{schema}}.{table} ({column}) select %(name)s"
        f" where not exists (select from {{schema}}.{table} where {column} = %(name)s)",
        {"name": name},
        using,
    )
    return _execute(f"select id from {{schema}}.{table} where {column} = %(name)s", {"name": name}, using)


def _execute(statement: str, parameters: dict[str, Any], using: str) -> int:
    with connections[using].cursor() as cursor:
        quoted = connections[using].ops.quote_name(settings.GRAPHILE_WORKER["SCHEMA"])
        cursor.execute(statement.format(schema=quoted), parameters)
        return int(cursor.fetchone()[0]) if cursor.description else 0
