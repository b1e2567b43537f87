"""``result()``: what became of a job, and the token with which a page may ask for the progress of a job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from django.conf import settings
from django.core import signing
from django.db import models
from django.utils.translation import gettext_lazy as _

from django_graphile_worker.api.connection import async_variant, open_place
from django_graphile_worker.exceptions import (
    InvalidTypeError,
    JobCancelledError,
    JobExpiredError,
    JobFailedError,
    ResultNotReadyError,
)
from django_graphile_worker.job_options import whole_number
from django_graphile_worker.jobs import Job
from django_graphile_worker.payloads import decode_leniently
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.sql.codecs import naive, time_reader
from django_graphile_worker.sql.progress import Progress
from django_graphile_worker.sql.results import ResultRow, cancellation_text, read_results
from django_graphile_worker.sql.results import ResultStatus as StoredStatus
from django_graphile_worker.text import quoted

LARGEST_ID = 2**63 - 1
# Signs the tokens: that of a job gives access to the progress of this job, and of no other job.
SALT = "django_graphile_worker.progress"
# After this time a token is refused. A page that shows a bar for longer is loaded again.
LONGEST_AGE = timedelta(days=7)


class ResultStatus(models.TextChoices):
    """What became of a job. Each status has a translated ``label`` for pages."""

    WAITING = "waiting", _("Waiting")
    RUNNING = "running", _("Running")
    SUCCEEDED = "succeeded", _("Succeeded")
    # Permanently: a job that is tried again is waiting.
    FAILED = "failed", _("Failed")
    # An operator or the project removed or completed it before it had ended.
    REMOVED = "removed", _("Removed")
    CANCELLED = "cancelled", _("Cancelled")
    # It was not started by the time at which it expired.
    EXPIRED = "expired", _("Expired")


_ENDED = {
    StoredStatus.SUCCEEDED: ResultStatus.SUCCEEDED,
    StoredStatus.FAILED: ResultStatus.FAILED,
    StoredStatus.WAITING: ResultStatus.REMOVED,
    StoredStatus.REMOVED: ResultStatus.REMOVED,
    StoredStatus.CANCELLED: ResultStatus.CANCELLED,
    StoredStatus.EXPIRED: ResultStatus.EXPIRED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt that has ended."""

    worker_id: str | None
    started_at: datetime | None
    ended_at: datetime | None
    # The dotted path of the exception, and the text that the job stored; None for the attempt that succeeded.
    exception_class: str | None
    traceback: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a job, as it was when it was read."""

    job_id: int
    task_identifier: str
    queue_name: str | None
    status: ResultStatus
    added_at: datetime
    first_started_at: datetime | None
    last_started_at: datetime | None
    # When the job succeeded or failed permanently.
    finished_at: datetime | None
    # The attempts that have ended, the latest last; empty if the task does not keep its results.
    attempts: tuple[Attempt, ...]
    # The worker that runs the job at this moment.
    worker_id: str | None
    last_error: str | None
    # The last progress that the task has reported in its latest attempt.
    progress: Progress | None
    _value: Any = None
    # Who cancelled the job, and why; None unless it was cancelled.
    cancelled_by: str | None = None
    cancel_reason: str | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the job has succeeded, has permanently failed or expired, or was removed or cancelled."""
        return self.status not in (ResultStatus.WAITING, ResultStatus.RUNNING)

    @property
    def value(self) -> Any:
        """What the task returned. Raises ``ResultNotReadyError`` or ``JobFailedError`` if there is no such value."""
        name = f"{self.task_identifier} #{self.job_id}"
        if not self.is_finished:
            raise ResultNotReadyError(f"{name} has no value yet: it is {self.status}. Use wait_for_result().")
        if self.status is ResultStatus.REMOVED:
            raise JobFailedError(f"{name} has no value: it was removed.")
        if self.status is ResultStatus.CANCELLED:
            why = cancellation_text(self.cancelled_by or "", self.cancel_reason or "")
            raise JobCancelledError(f"{name} has no value: it was cancelled. {why}")
        if self.status is ResultStatus.EXPIRED:
            raise JobExpiredError(f"{name} has no value: it expired before it started.")
        if self.status is ResultStatus.FAILED:
            why = (self.last_error or "no error is known").strip().partition("\n")[0]
            raise JobFailedError(f"{name} has no value: it failed: {why}")
        return self._value


def result_from(row: ResultRow) -> Result:
    """Return the value of a row."""
    attempts = tuple(_attempts(row.attempts_text))
    status = _status(row)
    return Result(
        job_id=row.job_id,
        task_identifier=row.task_identifier,
        queue_name=row.queue_name,
        status=status,
        added_at=_time(row.added_at),
        first_started_at=_time(row.first_started_at) or _time(row.locked_at),
        last_started_at=_time(row.locked_at) or _time(row.last_started_at),
        # A failed job that is tried again is not finished, although its result says when it failed.
        finished_at=None if status in (ResultStatus.WAITING, ResultStatus.RUNNING) else _time(row.finished_at),
        attempts=attempts,
        worker_id=row.worker_id,
        last_error=row.last_error if row.is_job_there else _last_error(attempts),
        progress=_progress(row),
        **_value_or_cancellation(status, row.value_text),
    )


def _value_or_cancellation(status: ResultStatus, value_text: str | None) -> dict[str, Any]:
    """Return the value of a job that succeeded; the value of a cancelled job says who cancelled it, and why."""
    value = None if value_text is None else decode_leniently(value_text)
    if status is not ResultStatus.CANCELLED:
        return {"_value": value}
    who_and_why = value if isinstance(value, dict) else {}
    return {"cancelled_by": who_and_why.get("by", ""), "cancel_reason": who_and_why.get("reason", "")}


def _status(row: ResultRow) -> ResultStatus:
    if not row.is_job_there:
        return _ENDED[StoredStatus(row.status or 0)]
    if row.worker_id is not None:
        return ResultStatus.RUNNING
    return ResultStatus.FAILED if row.has_ended else ResultStatus.WAITING


def _attempts(text: str | None) -> list[Attempt]:
    return [
        Attempt(
            worker_id=each.get("worker_id"),
            started_at=_moment(each.get("started_at")),
            ended_at=_moment(each.get("ended_at")),
            exception_class=each.get("exception_class"),
            traceback=each.get("traceback"),
        )
        for each in json.loads(text or "[]")
    ]


def _last_error(attempts: tuple[Attempt, ...]) -> str | None:
    return next((each.traceback for each in reversed(attempts) if each.traceback), None)


def _progress(row: ResultRow) -> Progress | None:
    if row.done is None:
        return None
    return Progress(done=row.done, total=row.total, message=row.message or "", updated_at=_time(row.progress_at))


def _moment(epoch: float | None) -> datetime | None:
    return None if epoch is None else time_reader()(epoch)


def _time(moment: Any) -> Any:
    # A connection of Django returns naive times if USE_TZ is False; the connection that waits returns aware times.
    return moment if moment is None or settings.USE_TZ else naive(moment)


class TaskResultLike(Protocol):
    """The part of a ``TaskResult`` of Django Tasks that names its job."""

    @property
    def id(self) -> str: ...

    @property
    def task(self) -> Any: ...


# A job, the id of a job, or the result of a Django task.
JobOrId = Job | int | TaskResultLike


def job_and_place(job_or_id: object, using: str | None, installation: str | None) -> tuple[int, Place]:
    """Return the id of the job that is meant, and its place; raise for anything else.

    The result of a Django task names its place itself: its backend knows where its jobs are.
    """
    if isinstance(job_or_id, Job):
        return job_or_id.id, place_of(using, installation)
    if isinstance(job_or_id, int) and not isinstance(job_or_id, bool):
        return whole_number("job_or_id", job_or_id, 1, LARGEST_ID), place_of(using, installation)
    if hasattr(job_or_id, "task") and isinstance(getattr(job_or_id, "id", None), str):
        return _of_task_result(job_or_id)
    got = f"{quoted(job_or_id)} ({type(job_or_id).__name__})"
    raise InvalidTypeError(
        f"job_or_id: expected a Job, the id of a job (int), or the result of a Django task, got {got}."
    )


def _of_task_result(result: Any) -> tuple[int, Place]:
    backend: Any = result.task.get_backend()
    if getattr(backend, "runs_in_graphile_worker", False) is not True:
        raise InvalidTypeError(f"job_or_id: only {type(backend).__name__} can read its results: result.refresh().")
    # Late import: only projects with Django Tasks have such a result.
    from django_graphile_worker.backend.results import job_id_of

    job_id = job_id_of(result.id, backend.alias)
    if job_id is None:
        raise InvalidTypeError(f"job_or_id: {quoted(result.id)} is no id that the backend {backend.alias!r} returned.")
    place: Place = backend.checked_options.place()
    return job_id, place


def result(job_or_id: JobOrId, *, using: str | None = None, installation: str | None = None) -> Result | None:
    """Return what became of a job, or None if nothing of it is kept.

    While a job waits or runs, and after it has failed permanently, its row is there. After it has succeeded, its result
    is there for as long as ``@task(keep_result=...)`` or the setting ``KEEP_RESULTS`` says.
    """
    job_id, place = job_and_place(job_or_id, using, installation)
    row = read_row(place, job_id)
    return None if row is None else result_from(row)


def read_row(place: Place, job_id: int) -> ResultRow | None:
    """Return what the database has about a job, as the transaction of the caller sees it."""
    with open_place(place) as queue:
        row = read_results(queue.cursor, [job_id], schema=queue.schema).get(job_id)
        if row is None:
            queue.refuse_hidden_tables()
        return row


aresult = async_variant(result)


def progress_token(job_or_id: JobOrId, *, using: str | None = None, installation: str | None = None) -> str:
    """Return the text that gives its holder the right to see the progress of this job, for a week."""
    job_id, place = job_and_place(job_or_id, using, installation)
    return signing.dumps([job_id, place.using, place.installation], salt=SALT)


def read_token(token: str) -> tuple[int, Place]:
    """Return the job and the place of a token; raise ``signing.BadSignature`` for any other or an old text."""
    job_id, using, installation = signing.loads(token, salt=SALT, max_age=LONGEST_AGE)
    return int(job_id), place_of(using, installation)
