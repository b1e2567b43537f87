"""The progress and the result of a job on its page, also after the job itself has been deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.jobs.detail.payload_tree import PayloadTree
from django_graphile_worker.admin.jobs.detail.tracebacks import parse_error
from django_graphile_worker.admin.shown_progress import shown_progress
from django_graphile_worker.payloads import RawPayload
from django_graphile_worker.redaction import HIDDEN, redact_text
from django_graphile_worker.results.reading import Attempt, Result, ResultStatus, result_from
from django_graphile_worker.sql.results import cancellation_text, read_results


def read_result(alias: str, job_id: int) -> Result | None:
    """Read what is kept of a job."""
    with databases.reading(alias) as (cursor, schema):
        row = read_results(cursor, [job_id], schema=schema).get(job_id)
    return None if row is None else result_from(row)


def result_context(found: Result | None, *, sees_payloads: bool) -> dict[str, Any]:
    """Return what a page shows of a result: the progress, the value and the attempts."""
    if found is None:
        return {"result": None, "progress": None}
    has_result = bool(found.attempts) or (found.is_finished and found.status is not ResultStatus.FAILED)
    started_at = None if found.is_finished else found.last_started_at
    progress = shown_progress(found.progress, sees_payloads=sees_payloads, started_at=started_at)
    return {"result": _shown(found, sees_payloads) if has_result else None, "progress": progress}


def _shown(found: Result, sees_payloads: bool) -> dict[str, Any]:
    return {
        "status": found.status.value,
        "status_name": found.status.label,
        "finished": formatting.exact_time(found.finished_at) if found.finished_at else "",
        "cancellation": _cancellation(found, sees_payloads),
        "value": _value(found, sees_payloads),
        "attempts": list(_attempts(found.attempts, sees_payloads)),
    }


def _cancellation(found: Result, sees_payloads: bool) -> str:
    if found.status is not ResultStatus.CANCELLED:
        return ""
    text = cancellation_text(found.cancelled_by or "", found.cancel_reason or "")
    return text if sees_payloads else redact_text(text)


def _value(found: Result, sees_payloads: bool) -> Any:
    if found.status is not ResultStatus.SUCCEEDED:
        return ""
    if not sees_payloads:
        return HIDDEN
    return found.value if isinstance(found.value, RawPayload) else PayloadTree().render(found.value)


def _attempts(attempts: tuple[Attempt, ...], sees_payloads: bool) -> Iterator[dict[str, Any]]:
    for number, attempt in enumerate(attempts, start=1):
        error = attempt.traceback or ""
        yield {
            "number": number,
            "worker": attempt.worker_id or formatting.EMPTY_VALUE,
            "started": formatting.relative_time(attempt.started_at),
            "duration": formatting.duration(_seconds(attempt)),
            "exception": attempt.exception_class or "",
            "error": parse_error(error if sees_payloads else redact_text(error)) if error else None,
        }


def _seconds(attempt: Attempt) -> float | None:
    if attempt.started_at is None or attempt.ended_at is None:
        return None
    return (attempt.ended_at - attempt.started_at).total_seconds()
