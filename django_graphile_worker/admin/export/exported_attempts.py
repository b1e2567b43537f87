"""Reads the attempts of a file of the history step by step, newest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django_graphile_worker.admin import databases
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.sql.inspection import past_attempts
from django_graphile_worker.sql.inspection.past_attempts import HistoryCriteria
from django_graphile_worker.sql.results import HistoryOutcome

STEP = 500
COLUMNS = (
    "job_id",
    "attempt",
    "task",
    "outcome",
    "queue",
    "key",
    "worker",
    "added_at",
    "run_at",
    "started_at",
    "ended_at",
    "seconds",
    "error",
)


def read_attempts(alias: str, criteria: HistoryCriteria, *, sees_payloads: bool) -> Iterator[Sequence[dict[str, Any]]]:
    """Yield the attempts that meet the criteria, some at a time. The rows of the history do not change."""
    token: str | None = None
    while True:
        with databases.reading(alias) as (cursor, schema):
            page = past_attempts.find_attempts(cursor, criteria, schema=schema, limit=STEP, after=token)
        yield [_row(row, sees_payloads=sees_payloads) for row in page.rows]
        token = page.next_token
        if token is None:
            return


def _row(row: past_attempts.HistoryRow, *, sees_payloads: bool) -> dict[str, Any]:
    return {
        "job_id": row.job_id,
        "attempt": row.attempt,
        "task": row.task_identifier,
        "outcome": HistoryOutcome(row.outcome).name.lower(),
        "queue": row.queue_name,
        "key": row.job_key,
        "worker": row.worker_id,
        "added_at": row.added_at,
        "run_at": row.run_at,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "seconds": row.seconds,
        "error": row.error if sees_payloads or row.error is None else redact_text(row.error),
    }
