"""The rows of the job of a Django task: the job while it exists, and the results that its attempts left."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from django_graphile_worker.payloads import decode_leniently
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.records.results import ResultStatus, cancellation_text
from django_graphile_worker.sql.result_keeping import CANCELLED, OPERATOR_ERROR
from django_graphile_worker.sql.schema import statement
from django_graphile_worker.sql.workers import worker_of

if TYPE_CHECKING:
    from django_graphile_worker.sql.cursor import Cursor

# One statement, and so one snapshot: the statement that ends a job deletes its row and writes its result. The attempts
# of a job that was replaced under its key do not count for the new job.
STORED_TASK = f"""/* gw:task-result */
select
    job.id, job_task.identifier, job.payload::text, {readable("job.created_at")}, job.locked_by,
    {readable("job.locked_at")}, job.attempts, job.max_attempts, job.last_error, {readable("job.updated_at")},
    kept.job_id, kept.task_identifier, kept.payload, {readable("kept.added_at")}, kept.status,
    {readable("kept.first_started_at")}, {readable("kept.last_started_at")}, {readable("kept.finished_at")},
    kept.value, kept.attempts::text
from (values (%(job_id)s::bigint)) as wanted (id)
left join :SCHEMA._private_jobs as job on job.id = wanted.id
left join :SCHEMA._private_tasks as job_task on job_task.id = job.task_id
left join :SCHEMA._private_results as kept
    on kept.job_id = wanted.id and (job.id is null or kept.revision = job.revision)"""

# The error of a job that ended without a run, if nothing else is known.
_ENDED_UNRUN = "The job was removed, completed or failed by a call of the API or in the admin, and not by its task."


class StoredAttempt(NamedTuple):
    """An attempt that has ended."""

    worker_id: str | None
    exception_class: str | None
    traceback: str | None


class StoredTask(NamedTuple):
    """The state of a Django task."""

    job_id: int
    task_identifier: str
    payload: Any
    added_at: datetime
    is_running: bool
    is_waiting: bool
    has_succeeded: bool
    first_started_at: datetime | None
    last_started_at: datetime | None
    finished_at: datetime | None
    value: Any
    attempts: list[StoredAttempt]


def stored_task(cursor: Cursor, job_id: int, *, schema: str) -> StoredTask | None:
    """Return the state of a job, or None if there is neither a job nor a result."""
    cursor.execute(statement(STORED_TASK, schema), {"job_id": job_id})
    row = cursor.fetchone()
    job, kept = row[:10], row[10:]
    if job[0] is None:
        return None if kept[0] is None else _ended(kept)
    return _existing(job, kept)


def _ended(kept: Any) -> StoredTask:
    """Return the state of a job that is gone: it succeeded, failed, or was removed."""
    has_succeeded = kept[4] == ResultStatus.SUCCEEDED
    attempts, value = _attempts(kept[9]), _decoded(kept[8])
    if kept[4] == ResultStatus.CANCELLED:
        attempts, value = _with_cancellation(attempts, value), None
    return StoredTask(
        job_id=kept[0],
        task_identifier=kept[1],
        payload=_decoded(kept[2]),
        added_at=kept[3],
        is_running=False,
        is_waiting=False,
        has_succeeded=has_succeeded,
        first_started_at=kept[5],
        last_started_at=kept[6],
        finished_at=kept[7],
        value=value,
        attempts=attempts if has_succeeded else _with_error(attempts, _ENDED_UNRUN),
    )


def _existing(job: Any, kept: Any) -> StoredTask:
    job_id, identifier, payload, added_at, locked_by, locked_at, attempts, max_attempts, last_error, updated_at = job
    is_running = locked_at is not None
    is_waiting = not is_running and attempts < max_attempts
    has_failed = not is_running and not is_waiting
    ended = _attempts(kept[9])
    if has_failed:
        ended = _with_error(ended, last_error or _ENDED_UNRUN)
    if is_running and locked_by:
        ended.append(StoredAttempt(worker_of(locked_by), None, None))
    return StoredTask(
        job_id=job_id,
        task_identifier=identifier,
        payload=_decoded(payload),
        added_at=added_at,
        is_running=is_running,
        is_waiting=is_waiting,
        has_succeeded=False,
        first_started_at=kept[5] or (locked_at if is_running else None),
        last_started_at=locked_at if is_running else kept[6],
        finished_at=(kept[7] or updated_at) if has_failed else None,
        value=None,
        attempts=ended,
    )


def _with_error(attempts: list[StoredAttempt], text: str) -> list[StoredAttempt]:
    """Return the attempts of a job that did not succeed, with an error if none of them has one."""
    if any(attempt.exception_class for attempt in attempts):
        return attempts
    return [*attempts, StoredAttempt(None, OPERATOR_ERROR, text)]


def _with_cancellation(attempts: list[StoredAttempt], who_and_why: Any) -> list[StoredAttempt]:
    """Return the attempts of a cancelled job; a job that was cancelled while it waited has none for that."""
    if attempts and attempts[-1].exception_class == CANCELLED:
        return attempts
    told = who_and_why if isinstance(who_and_why, dict) else {}
    text = cancellation_text(told.get("by", ""), told.get("reason", ""))
    return [*attempts, StoredAttempt(None, CANCELLED, text)]


def _attempts(text: str | None) -> list[StoredAttempt]:
    attempts = _decoded(text)
    if not isinstance(attempts, list):
        return []
    return [
        StoredAttempt(each.get("worker_id"), each.get("exception_class"), each.get("traceback"))
        for each in attempts
        if isinstance(each, dict)
    ]


def _decoded(text: str | None) -> Any:
    return None if text is None else decode_leniently(text)
