"""The names under which tests claim jobs by SQL, and the row of a job as it is stored."""

from __future__ import annotations

from typing import Any

WORKER_ID = "django-worker-1"
WORKER, OTHER = f"{WORKER_ID}/1", "django-worker-2/1"


def row(cursor: Any, job_id: int, schema: str) -> dict[str, Any] | None:
    """Return the columns of a job, or None if it does not exist."""
    cursor.execute(f'select * from "{schema}"._private_jobs where id = %s', [job_id])
    values = cursor.fetchone()
    return None if values is None else dict(zip([column[0] for column in cursor.description], values, strict=True))
