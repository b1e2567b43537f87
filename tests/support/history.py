"""Rows of the history, as workers write them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from tests.support.factories import minutes_ago
from tests.support.rows import in_quotes


def make_attempt(cursor: Any, schema: str, job_id: int, **columns: Any) -> None:
    """Insert an attempt with these columns and defaults for the others."""
    ended_at: datetime = columns.pop("ended_at", None) or minutes_ago(1)
    payload = columns.pop("payload", None)
    row = {
        "ended_at": ended_at,
        "started_at": ended_at - timedelta(seconds=2),
        "added_at": ended_at - timedelta(seconds=5),
        "run_at": ended_at - timedelta(seconds=4),
        "job_id": job_id,
        "attempt": 1,
        "outcome": 1,
        "task_identifier": "task",
        "worker_id": "django-worker-1",
        "payload": None if payload is None else json.dumps(payload, ensure_ascii=False),
        **columns,
    }
    names, values = ", ".join(row), ", ".join(f"%({name})s" for name in row)
    cursor.execute(f"insert into {in_quotes(schema)}._private_history ({names}) values ({values})", row)
