"""Deleting what nobody needs."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from django.db import OperationalError, transaction

from django_graphile_worker import registry
from django_graphile_worker.api.queue import Queue, open_queue
from django_graphile_worker.api.twins import asynchronous
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.sql import cleanup as sql_cleanup
from django_graphile_worker.sql.cleanup import CleanupResult
from django_graphile_worker.sql.errors import sqlstate

LOCK_NOT_AVAILABLE = "55P03"


def cleanup(
    *,
    failed_jobs_older_than: timedelta | None = None,
    unused_queues: bool = True,
    unused_tasks: bool = True,
    using: str | None = None,
    installation: str | None = None,
) -> CleanupResult:
    """Delete old permanently failed jobs (when an age is given), and the names that no job uses.

    Task names that this process or a live worker knows are kept. graphile-worker's Node workers
    do not tell theirs: where they run too, leave ``unused_tasks`` out.
    """
    age = _valid_age(failed_jobs_older_than)
    with open_queue(using, installation) as queue:
        queue.refuse_blindness()
        jobs = 0
        if age is not None:
            jobs = sql_cleanup.delete_failed_jobs(queue.cursor, older_than=age, schema=queue.schema)
        result = CleanupResult(jobs=jobs)
        if unused_queues or unused_tasks:
            result = _delete_unused_names(queue, result, queues=unused_queues, tasks=unused_tasks)
        return result


def _delete_unused_names(queue: Queue, result: CleanupResult, *, queues: bool, tasks: bool) -> CleanupResult:
    cursor, alias, schema, _ = queue
    with transaction.atomic(using=alias):
        if not _lock_names(queue):
            return dataclasses.replace(result, is_complete=False)
        if queues:
            count = sql_cleanup.delete_unused_queues(cursor, schema=schema)
            result = dataclasses.replace(result, queues=count)
        if tasks:
            deleted = sql_cleanup.delete_unused_tasks(cursor, keep=registry.tasks.identifiers(), schema=schema)
            result = dataclasses.replace(result, tasks=deleted or 0, is_complete=deleted is not None)
    return result


def _lock_names(queue: Queue) -> bool:
    if sql_cleanup.try_names_lock(queue.cursor, schema=queue.schema):
        return True
    try:
        with transaction.atomic(using=queue.alias):
            sql_cleanup.wait_for_names_lock(queue.cursor, schema=queue.schema)
    except OperationalError as error:
        if sqlstate(error) != LOCK_NOT_AVAILABLE:
            raise
        return False
    return True


def _valid_age(age: timedelta | None) -> float | None:
    if age is None:
        return None
    if not isinstance(age, timedelta):
        raise InvalidTypeError(f"failed_jobs_older_than: expected a timedelta, got {age!r}.")
    if age < timedelta(0):
        raise InvalidJobError(f"failed_jobs_older_than: expected zero or more, got {age!r}.")
    return age.total_seconds()


acleanup = asynchronous(cleanup)
