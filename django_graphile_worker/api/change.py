"""Reads and changes jobs: by key or by id, as operators do, and the cancelling of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import transaction

from django_graphile_worker import signals, simulation
from django_graphile_worker.api.connection import (
    QueueConnection,
    Time,
    async_variant,
    aware,
    from_text,
    open_place,
    open_queue,
)
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.job_options import (
    LARGEST_MAX_ATTEMPTS,
    SMALLEST_PRIORITY,
    valid_job_key,
    valid_max_attempts,
    valid_priority,
    valid_run_at,
    whole_number,
)
from django_graphile_worker.jobs import Job, RemovedJob
from django_graphile_worker.payloads import encode
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.sql import control
from django_graphile_worker.sql import jobs as sql_jobs
from django_graphile_worker.sql.control import Cancellation, CancelledJob, Fate
from django_graphile_worker.sql.job_actions.changes import (
    FAIL,
    RESCHEDULE,
    RETRY,
    RUN_NEXT,
    RUN_NOW,
    Change,
    change_jobs,
    first_priority,
)
from django_graphile_worker.text import storable_text

LARGEST_ID = 2**63 - 1
# What functions take that change jobs: one job or many, or their ids.
Jobs = Job | int | Iterable[Job | int]
# The payload of retry_jobs() if none is given: None is a payload, too.
KEEP: Any = object()
NO_LOWER_PRIORITY = (
    f"run_next: a job waits with {SMALLEST_PRIORITY}, the lowest priority of all, and no job can run before it. Give "
    "that job a higher number first."
)
# The characters of the texts about a cancellation; the rest of a longer text is cut off.
MAX_REASON_LENGTH = 10_000
MAX_NAME_LENGTH = 300
# A call that found none of its jobs may have been sent by a role that sees no rows.
FOUND = (control.REMOVED, control.STOPPING, control.UNSTOPPABLE)


def get_job(id_or_key: int | str | Job, *, using: str | None = None, installation: str | None = None) -> Job | None:
    """Return the job with this id (an int) or this key (a str), or None. A ``Job`` is read again.

    A job that has succeeded or was completed is deleted, so the result is None.
    """
    wanted = _valid_id_or_key(id_or_key)
    with open_queue(using, installation) as queue:
        job = sql_jobs.get_job(queue.cursor, wanted, schema=queue.schema)
        return next(iter(queue.found([job] if job else [])), None)


def _valid_id_or_key(value: object) -> int | str:
    if isinstance(value, str):
        return valid_job_key(value) or ""
    if isinstance(value, int):
        return whole_number("id_or_key", value, 1, LARGEST_ID)
    if isinstance(value, Job):
        return value.id
    # The value itself may have a payload.
    raise InvalidTypeError(f"id_or_key: expected a job, its id (int) or its key (str), got {type(value).__name__}.")


def remove_job(job_key: str, *, using: str | None = None, installation: str | None = None) -> RemovedJob | None:
    """Remove the job with this key and return it, or return None.

    A running job is not stopped: it loses its key, and is not retried. Then ``was_running`` of the result is
    True.
    """
    key = valid_job_key(job_key)
    if key is None:
        raise InvalidTypeError("job_key: expected a string, got None.")
    with open_queue(using, installation) as queue:
        job = sql_jobs.remove_job(queue.cursor, key, schema=queue.schema, notify=queue.notify, keeping=queue.keeping)
        found = next(iter(queue.found([job] if job else [])), None)
        return None if found is None else RemovedJob(**vars(found))


def complete_jobs(job_ids: Jobs, *, using: str | None = None, installation: str | None = None) -> list[Job]:
    """Delete jobs as if they had succeeded, and return them. Running jobs are neither deleted nor returned."""
    ids = valid_ids(job_ids)
    if not ids:
        return []
    with open_queue(using, installation) as queue:
        return queue.found(sql_jobs.complete_jobs(queue.cursor, ids, schema=queue.schema, keeping=queue.keeping))


def permanently_fail_jobs(
    job_ids: Jobs,
    error_message: str | None = None,
    *,
    using: str | None = None,
    installation: str | None = None,
) -> list[Job]:
    """Mark waiting jobs as permanently failed, and return them.

    The message is added to the error that a job has. Jobs that have failed permanently before, and running jobs, are
    neither changed nor returned.
    """
    ids = valid_ids(job_ids)
    if error_message is not None and not isinstance(error_message, str):
        raise InvalidTypeError(f"error_message: expected a string, got {error_message!r}.")
    message = None if error_message is None else storable_text(error_message)
    if not ids:
        return []
    change = Change(action=FAIL) if message is None else Change(action=FAIL, reason=message)
    with open_queue(using, installation) as queue:
        failed = change_jobs(queue.cursor, ids, change, schema=queue.schema, notify=queue.notify, keeping=queue.keeping)
        return queue.found(failed)


def reschedule_jobs(
    job_ids: Jobs,
    *,
    run_at: Time | None = None,
    priority: int | None = None,
    attempts: int | None = None,
    max_attempts: int | None = None,
    using: str | None = None,
    installation: str | None = None,
) -> list[Job]:
    """Change the time, the priority and the attempts of jobs, and return them. None leaves a value unchanged.

    ``run_at`` is a datetime, a text in the ISO format, or a timedelta from now.

    A permanently failed job that gets a time also gets all its attempts again, unless ``attempts`` is given or
    ``max_attempts`` leaves it some. Running jobs are neither changed nor returned.
    """
    ids = valid_ids(job_ids)
    change = Change(
        action=RESCHEDULE,
        run_at=simulation.moved(aware(valid_run_at(from_text(run_at)))),
        priority=valid_priority(priority),
        attempts=None if attempts is None else whole_number("attempts", attempts, 0, LARGEST_MAX_ATTEMPTS),
        max_attempts=valid_max_attempts(max_attempts),
    )
    if not ids:
        return []
    with open_queue(using, installation) as queue:
        return _changed(queue, ids, change)


def force_unlock_workers(
    worker_ids: Iterable[str], *, using: str | None = None, installation: str | None = None
) -> None:
    """Unlock the jobs and queues of workers that have certainly ended.

    If a worker still runs, its jobs run a second time, at the same time. A job that was cancelled meanwhile ends.
    """
    ids = _valid_list("worker_ids", "worker ids", worker_ids)
    for worker_id in ids:
        if not isinstance(worker_id, str):
            raise InvalidTypeError(f"worker_ids: expected strings, got {worker_id!r}.")
    if ids:
        place = place_of(using, installation)
        with open_place(place) as queue:
            cancelled = control.end_cancelled_claims_of(queue.cursor, ids, schema=queue.schema, keeping=queue.keeping)
            send_cancelled(place, cancelled)
            sql_jobs.force_unlock_workers(queue.cursor, ids, schema=queue.schema)
            queue.refuse_hidden_tables()


def run_now(job_ids: Jobs, *, using: str | None = None, installation: str | None = None) -> list[Job]:
    """Make waiting jobs due now, and return them.

    Their attempts, their priority and their order stay. Jobs that are due already, that have failed permanently, or
    that run are neither changed nor returned.
    """
    ids = valid_ids(job_ids)
    if not ids:
        return []
    with open_queue(using, installation) as queue:
        return _changed(queue, ids, Change(action=RUN_NOW, now=_now()))


def run_next(job_ids: Jobs, *, using: str | None = None, installation: str | None = None) -> list[Job]:
    """Give due jobs a priority one lower than that of every other job that waits, and return them.

    Among each other they keep their order. A job of a queue still waits until the queue is free. Jobs that are not due,
    that run, or that are before all others already are neither changed nor returned.
    """
    ids = valid_ids(job_ids)
    if not ids:
        return []
    with open_queue(using, installation) as queue:
        priority = first_priority(queue.cursor, ids, schema=queue.schema)
        if priority is None:
            raise InvalidJobError(NO_LOWER_PRIORITY)
        return _changed(queue, ids, Change(action=RUN_NEXT, priority=priority, now=_now()))


def retry_jobs(
    job_ids: Jobs, *, payload: Any = KEEP, using: str | None = None, installation: str | None = None
) -> list[Job]:
    """Give jobs that have failed all their attempts again, make them due now, and return them.

    With ``payload``, they get another payload. They keep their id and their last error. Jobs that have not failed, or
    that run, are neither changed nor returned.
    """
    ids = valid_ids(job_ids)
    if not ids:
        return []
    with open_queue(using, installation) as queue:
        text = None if payload is KEEP else encode(payload, max_size=queue.settings.max_payload_size)
        return _changed(queue, ids, Change(action=RETRY, payload=text, now=_now()))


def _changed(queue: QueueConnection, ids: Sequence[int], change: Change) -> list[Job]:
    return queue.found(change_jobs(queue.cursor, ids, change, schema=queue.schema, notify=queue.notify))


def _now() -> Any:
    """Return the time of a test's clock; None without one."""
    return simulation.now() if simulation.now is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelResult:
    """What a call made of each job: every id that was given is in one of the tuples."""

    # These jobs waited. They are deleted, and never run.
    removed: tuple[int, ...] = ()
    # A worker runs these jobs. After the commit it stops them; a job that ends before that has ended.
    stopping: tuple[int, ...] = ()
    # A worker of Node.js runs these jobs, which nothing can stop. They are not tried again if they fail.
    unstoppable: tuple[int, ...] = ()
    # These jobs had ended before: they failed permanently, or a result says how they ended.
    ended: tuple[int, ...] = ()
    # There are no such jobs: they ended and left no result, or never existed.
    unknown: tuple[int, ...] = ()

    @property
    def cancelled(self) -> tuple[int, ...]:
        """The jobs that were removed or are being stopped."""
        return self.removed + self.stopping


def cancel_jobs(
    job_ids: Jobs,
    *,
    reason: str = "",
    by: str = "",
    using: str | None = None,
    installation: str | None = None,
) -> CancelResult:
    """Remove jobs that wait, and stop jobs that run; return what became of each of them.

    The call is part of the caller's transaction: workers are notified at its commit. A cancelled job is not tried
    again. ``by`` and ``reason`` say who cancelled it and why; its result, the history and the signal
    ``job_cancelled`` have both.
    """
    ids = valid_ids(job_ids)
    texts = _valid_texts(reason, by)
    if not ids:
        return CancelResult()
    place = place_of(using, installation)
    with open_place(place) as queue:
        cancellation = _cancellation(queue, *texts)
        fates = control.cancel_jobs(queue.cursor, ids, cancellation, schema=queue.schema)
        return _result(place, queue, cancellation, fates)


def cancel_by_key(
    job_key: str, *, reason: str = "", by: str = "", using: str | None = None, installation: str | None = None
) -> CancelResult:
    """Cancel the job with this key, as ``cancel_jobs()`` does; the result is empty if there is none.

    A running job that was replaced or removed has lost its key: cancel it by its id.
    """
    key = valid_job_key(job_key)
    if key is None:
        raise InvalidTypeError("job_key: expected a string, got None.")
    texts = _valid_texts(reason, by)
    place = place_of(using, installation)
    with open_place(place) as queue:
        cancellation = _cancellation(queue, *texts)
        fates = control.cancel_by_key(queue.cursor, key, cancellation, schema=queue.schema)
        return _result(place, queue, cancellation, fates)


def _valid_texts(reason: object, by: object) -> tuple[str, str]:
    for name, value in (("reason", reason), ("by", by)):
        if not isinstance(value, str):
            raise InvalidTypeError(f"{name}: expected a string, got {value!r}.")
    return storable_text(str(reason))[:MAX_REASON_LENGTH], storable_text(str(by))[:MAX_NAME_LENGTH]


def _cancellation(queue: QueueConnection, reason: str, by: str) -> Cancellation:
    is_read = signals.job_cancelled.is_heard()
    return Cancellation(reason=reason, by=by, notify=queue.notify, keeping=queue.keeping, is_read=is_read)


def _result(place: Place, queue: QueueConnection, cancellation: Cancellation, fates: Sequence[Fate]) -> CancelResult:
    if not any(fate.fate in FOUND for fate in fates):
        queue.refuse_hidden_tables()
    send_cancelled(place, control.removed_jobs(fates, cancellation))
    by_fate = {name: tuple(sorted(fate.job_id for fate in fates if fate.fate == name)) for name in control.FATES}
    return CancelResult(**by_fate)


def send_cancelled(place: Place, jobs: Sequence[CancelledJob]) -> None:
    """Send the signal for each job when the transaction commits. The worker that stops a job sends it for that job."""
    if jobs and signals.job_cancelled.is_heard():
        transaction.on_commit(partial(_send, place, jobs), using=place.using, robust=True)


def _send(place: Place, jobs: Sequence[CancelledJob]) -> None:
    about = {"worker_id": "", "database": place.using, "installation": place.installation}
    for each in jobs:
        why = {"reason": each.reason, "cancelled_by": each.cancelled_by}
        signals.job_cancelled.send_robust(sender=CancelledJob, **about, job=each.job, duration=each.duration, **why)


def valid_ids(job_ids: Jobs) -> list[int]:
    """Return the ids of one job or of many; raise for anything else."""
    values = [job_ids] if isinstance(job_ids, Job | int) else _valid_list("job_ids", "jobs or job ids", job_ids)
    return [_valid_id(value) for value in values]


def _valid_id(value: object) -> int:
    if isinstance(value, Job):
        return value.id
    if not isinstance(value, int | float | str | None):
        # The value itself may have a payload.
        raise InvalidTypeError(f"job_ids: expected jobs or job ids, got {type(value).__name__}.")
    return whole_number("job_ids", value, 1, LARGEST_ID)


def _valid_list(name: str, things: str, values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidTypeError(f"{name}: expected a list of {things}, got {type(values).__name__}.")
    return list(values)


aget_job = async_variant(get_job)
aremove_job = async_variant(remove_job)
acomplete_jobs = async_variant(complete_jobs)
apermanently_fail_jobs = async_variant(permanently_fail_jobs)
areschedule_jobs = async_variant(reschedule_jobs)
aforce_unlock_workers = async_variant(force_unlock_workers)
arun_now = async_variant(run_now)
arun_next = async_variant(run_next)
aretry_jobs = async_variant(retry_jobs)
acancel_jobs = async_variant(cancel_jobs)
acancel_by_key = async_variant(cancel_by_key)
