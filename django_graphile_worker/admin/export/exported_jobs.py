"""Reads the jobs of a file step by step, each step in a transaction of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from django_graphile_worker.admin import databases
from django_graphile_worker.payloads import RawPayload, decode_leniently
from django_graphile_worker.redaction import HIDDEN, redact, redact_text
from django_graphile_worker.sql.inspection import job_detail
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria
from django_graphile_worker.sql.inspection.job_search.orders import Order
from django_graphile_worker.sql.job_actions.bulk_steps import beginning

STEP = 500
COLUMNS = (
    "id",
    "task",
    "state",
    "queue",
    "priority",
    "attempts",
    "max_attempts",
    "run_at",
    "created_at",
    "updated_at",
    "locked_at",
    "worker",
    "key",
    "flags",
    "error",
)
PAYLOAD_COLUMNS = ("payload", "payload_is_left_out")


def columns(*, sees_payloads: bool) -> tuple[str, ...]:
    """Return the columns of a file; payloads need the permission."""
    return COLUMNS + PAYLOAD_COLUMNS if sees_payloads else COLUMNS


def read_jobs(
    alias: str, criteria: Criteria, order: Order | None, *, sees_payloads: bool
) -> Iterator[Sequence[dict[str, Any]]]:
    """Yield the jobs that meet the criteria, some at a time.

    A transaction that stays open while a file is downloaded would keep the rows of all jobs that end meanwhile. So each
    step has its own. The jobs of a search are in an order that changes when a job changes: without those that changed
    since the beginning, a job is never in the file twice. All jobs are in the order of their ids, which do not change.
    """
    token: str | None = None
    if replace(criteria, within=None) != Criteria():
        with databases.reading(alias) as (cursor, _schema):
            criteria = replace(criteria, unchanged_since=beginning(cursor))
    while True:
        with databases.reading(alias) as (cursor, schema):
            found = search.find(cursor, criteria, schema=schema, limit=STEP, after=token, order=order)
            rows = search.rows(cursor, found.ids, schema=schema)
            payloads = job_detail.whole_payloads(cursor, found.ids, schema=schema) if sees_payloads else {}
        yield [_row(row, payloads, sees_payloads=sees_payloads) for row in rows]
        token = found.next_token
        if token is None:
            return


def _row(row: search.JobRow, payloads: dict[int, str | None], *, sees_payloads: bool) -> dict[str, Any]:
    exported = {
        "id": row.id,
        "task": row.task_identifier,
        "state": row.state.value,
        "queue": row.queue_name,
        "priority": row.priority,
        "attempts": row.attempts_made,
        "max_attempts": row.max_attempts,
        "run_at": row.run_at,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "locked_at": row.locked_at,
        "worker": row.locked_by,
        "key": row.key,
        "flags": row.flags_text,
        "error": row.error if sees_payloads or row.error is None else redact_text(row.error),
    }
    return exported | _payload(payloads.get(row.id)) if sees_payloads else exported


def _payload(text: str | None) -> dict[str, Any]:
    """Return the payload with the values of secret keys hidden: a file is passed on more easily than a page."""
    if text is None:
        return {"payload": None, "payload_is_left_out": True}
    value = decode_leniently(text)
    shown = HIDDEN if isinstance(value, RawPayload) else redact(value)
    return {"payload": shown, "payload_is_left_out": isinstance(value, RawPayload)}
