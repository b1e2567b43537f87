"""``cleanup()``, which deletes old failed jobs, and the names of queues and tasks that no job uses."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from functools import partial

from django.db import connections

from django_graphile_worker import registry
from django_graphile_worker.api.async_variants import async_variant
from django_graphile_worker.api.connection import QueueConnection, open_queue
from django_graphile_worker.api.unused_names import IncompleteError, NamesDeletion
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.sql import cleanup as sql_cleanup
from django_graphile_worker.sql import unused_names, workers
from django_graphile_worker.sql.cleanup import CleanupResult
from django_graphile_worker.sql.overlap import is_outside_transactions


def cleanup(
    *,
    failed_jobs_older_than: timedelta | None = None,
    unused_queues: bool = True,
    unused_tasks: bool = True,
    using: str | None = None,
    installation: str | None = None,
) -> CleanupResult:
    """Delete permanently failed jobs of a given age, and the names of queues and tasks that no job uses.

    Names of tasks that this process or a live worker has are kept. Workers of graphile-worker for
    Node.js do not register their tasks: if such workers share the schema, pass ``unused_tasks=False``.

    A few rows are deleted at a time, in a transaction of their own, so that adding a job waits for a
    few milliseconds at most. Inside a transaction of the caller, other sessions cannot add jobs from
    the deletion of the first name until that transaction ends.
    """
    age = _valid_age(failed_jobs_older_than)
    with open_queue(using, installation) as queue:
        queue.refuse_hidden_tables()
        jobs = 0 if age is None else _delete_failed_jobs(queue, age)
        result = CleanupResult(jobs=jobs)
        if unused_queues or unused_tasks:
            result = _delete_unused_names(queue, result, queues=unused_queues, tasks=unused_tasks)
        return result


def _delete_failed_jobs(queue: QueueConnection, age: float) -> int:
    total = 0
    while deleted := sql_cleanup.delete_failed_jobs(queue.cursor, older_than=age, schema=queue.schema):
        total += deleted
    return total


def _delete_unused_names(queue: QueueConnection, result: CleanupResult, *, queues: bool, tasks: bool) -> CleanupResult:
    if not _can_see_all_jobs(queue):
        return dataclasses.replace(result, is_complete=False)
    try:
        if queues:
            result = dataclasses.replace(result, queues=_delete_queues(queue))
        if tasks:
            result = dataclasses.replace(result, tasks=_delete_tasks(queue))
    except IncompleteError as error:
        return dataclasses.replace(result, is_complete=False, **{error.kind: error.deleted})
    return result


def _can_see_all_jobs(queue: QueueConnection) -> bool:
    is_own_transaction = is_outside_transactions(connections[queue.alias])
    return (is_own_transaction or unused_names.sees_commits(queue.cursor)) and not unused_names.has_old_adders(
        queue.cursor, schema=queue.schema
    )


def _delete_queues(queue: QueueConnection) -> int:
    find = partial(unused_names.find_unused_queues, queue.cursor, schema=queue.schema)
    delete = partial(unused_names.delete_queues, queue.cursor, schema=queue.schema)
    return NamesDeletion("queues", queue, find, delete).run()


def _delete_tasks(queue: QueueConnection) -> int:
    if unused_names.has_silent_workers(queue.cursor, schema=queue.schema):
        raise IncompleteError("tasks")
    live = workers.live_task_identifiers(queue.cursor, schema=queue.schema)
    keep = sorted(live.union(registry.tasks.identifiers()))
    find = partial(unused_names.find_unused_tasks, queue.cursor, schema=queue.schema, keep=keep)
    delete = partial(unused_names.delete_tasks, queue.cursor, schema=queue.schema)
    return NamesDeletion("tasks", queue, find, delete).run()


def _valid_age(age: timedelta | None) -> float | None:
    if age is None:
        return None
    if not isinstance(age, timedelta):
        raise InvalidTypeError(f"failed_jobs_older_than: expected a timedelta, got {age!r}.")
    if age < timedelta(0):
        raise InvalidJobError(f"failed_jobs_older_than: expected zero or more, got {age!r}.")
    return age.total_seconds()


acleanup = async_variant(cleanup)
