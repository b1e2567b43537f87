"""The actions of operators on jobs: run now, run next, and retry. The admin and the command do the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_graphile_worker import simulation
from django_graphile_worker.api.async_variants import async_variant
from django_graphile_worker.api.change import Jobs, valid_ids
from django_graphile_worker.api.connection import QueueConnection, open_queue
from django_graphile_worker.exceptions import InvalidJobError
from django_graphile_worker.job_options import SMALLEST_PRIORITY
from django_graphile_worker.jobs import Job
from django_graphile_worker.payloads import encode
from django_graphile_worker.sql.job_actions import changes
from django_graphile_worker.sql.job_actions.changes import Change, first_priority

# The payload of retry_jobs() if none is given: None is a payload, too.
KEEP: Any = object()
NO_LOWER_PRIORITY = (
    f"run_next: expected a job with a priority above {SMALLEST_PRIORITY}, the lowest of all, got one that waits with "
    "it: no job can run before it. Give that job a higher number first."
)


def run_now(job_ids: Jobs, *, using: str | None = None, installation: str | None = None) -> list[Job]:
    """Make waiting jobs due now, and return them.

    Their attempts, their priority and their order stay. Jobs that are due already, that have failed permanently, or
    that run are neither changed nor returned.
    """
    ids = valid_ids(job_ids)
    if not ids:
        return []
    with open_queue(using, installation) as queue:
        return _changed(queue, ids, Change(action=changes.RUN_NOW, now=_now()))


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
        return _changed(queue, ids, Change(action=changes.RUN_NEXT, priority=priority, now=_now()))


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
        return _changed(queue, ids, Change(action=changes.RETRY, payload=text, now=_now()))


def _changed(queue: QueueConnection, ids: Sequence[int], change: Change) -> list[Job]:
    jobs = changes.change_jobs(queue.cursor, ids, change, schema=queue.schema, notify=queue.notify)
    return queue.found(jobs)


def _now() -> Any:
    """Return the time of a test's clock; None without one."""
    return simulation.now() if simulation.now is not None else None


arun_now = async_variant(run_now)
arun_next = async_variant(run_next)
aretry_jobs = async_variant(retry_jobs)
