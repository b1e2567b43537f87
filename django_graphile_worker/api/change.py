"""Reads and changes jobs by key or by id, and unlocks the jobs of workers by worker id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django_graphile_worker import simulation
from django_graphile_worker.api.async_variants import async_variant
from django_graphile_worker.api.connection import open_place, open_queue
from django_graphile_worker.api.times import Time, aware, from_text
from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.job_options import (
    LARGEST_MAX_ATTEMPTS,
    valid_job_key,
    valid_max_attempts,
    valid_priority,
    valid_run_at,
    whole_number,
)
from django_graphile_worker.jobs import Job, RemovedJob
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql import jobs as sql_jobs
from django_graphile_worker.sql.job_actions.changes import FAIL, RESCHEDULE, Change, change_jobs
from django_graphile_worker.text import storable_text

LARGEST_ID = 2**63 - 1


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
        moved = change_jobs(queue.cursor, ids, change, schema=queue.schema, notify=queue.notify)
        return queue.found(moved)


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
        # Late import: few processes unlock workers.
        from django_graphile_worker.api.cancelled import send_cancelled
        from django_graphile_worker.sql import cancellations

        place = place_of(using, installation)
        with open_place(place) as queue:
            cancelled = cancellations.end_claims_of(queue.cursor, ids, schema=queue.schema, keeping=queue.keeping)
            send_cancelled(place, cancelled)
            sql_jobs.force_unlock_workers(queue.cursor, ids, schema=queue.schema)
            queue.refuse_hidden_tables()


# What functions take that change jobs: one job or many, or their ids.
Jobs = Job | int | Iterable[Job | int]


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
