"""``cleanup()``, which deletes old failed jobs, and the names of queues and tasks that no job uses."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

from django.db import OperationalError, transaction

from django_graphile_worker import registry
from django_graphile_worker.api.connection import QueueConnection, async_variant, is_outside_transactions, open_queue
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.sql import cleanup as sql_cleanup
from django_graphile_worker.sql import workers
from django_graphile_worker.sql.cleanup import CleanupResult, Watermark
from django_graphile_worker.sql.errors import sqlstate
from django_graphile_worker.sql.inspection import statement_limits

T = TypeVar("T")

# Others held the lock for longer than lock_timeout, or we would have held it for longer than statement_timeout.
LOCK_TROUBLE = frozenset({"55P03", "57014"})
# The number of attempts to get the lock, and the pause between them in seconds, in which other sessions can write jobs.
TRIES = 5
PAUSE = 0.05


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

    A few rows are deleted at a time, in a transaction of their own, so that adding and running jobs
    waits for a moment at most. Inside a transaction of the caller, other sessions can neither add nor
    run jobs from the deletion of the first name until that transaction ends.
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


class IncompleteError(Exception):
    """Only ``deleted`` of the unused names of a kind ("queues" or "tasks") could be deleted."""

    def __init__(self, kind: str, deleted: int = 0) -> None:
        super().__init__(kind, deleted)
        self.kind = kind
        self.deleted = deleted


def _delete_unused_names(queue: QueueConnection, result: CleanupResult, *, queues: bool, tasks: bool) -> CleanupResult:
    if not is_outside_transactions(queue.alias) and not sql_cleanup.sees_commits(queue.cursor):
        return dataclasses.replace(result, is_complete=False)
    try:
        if queues:
            result = dataclasses.replace(result, queues=_delete_queues(queue))
        if tasks:
            result = dataclasses.replace(result, tasks=_delete_tasks(queue))
    except IncompleteError as error:
        return dataclasses.replace(result, is_complete=False, **{error.kind: error.deleted})
    return result


def _delete_queues(queue: QueueConnection) -> int:
    find = partial(sql_cleanup.find_unused_queues, queue.cursor, schema=queue.schema)
    delete = partial(sql_cleanup.delete_queues, queue.cursor, schema=queue.schema)
    return _delete_names("queues", queue, find, delete)


def _delete_tasks(queue: QueueConnection) -> int:
    if sql_cleanup.has_silent_workers(queue.cursor, schema=queue.schema):
        raise IncompleteError("tasks")
    live = workers.live_task_identifiers(queue.cursor, schema=queue.schema)
    keep = sorted(live.union(registry.tasks.identifiers()))
    find = partial(sql_cleanup.find_unused_tasks, queue.cursor, schema=queue.schema, keep=keep)
    delete = partial(sql_cleanup.delete_tasks, queue.cursor, schema=queue.schema)
    return _delete_names("tasks", queue, find, delete)


def _delete_names(
    kind: str, queue: QueueConnection, find: Callable[..., list[int]], delete: Callable[[Sequence[int], Watermark], int]
) -> int:
    """Delete all unused names, a few at a time, and return their number."""
    deleted = after = 0
    try:
        while True:
            since = _under_lock(queue, partial(sql_cleanup.watermark, queue.cursor, schema=queue.schema))
            ids = find(after=after)
            if not ids:
                return deleted
            for start in range(0, len(ids), sql_cleanup.MAX_DELETED):
                portion = ids[start : start + sql_cleanup.MAX_DELETED]
                deleted += _under_lock(queue, partial(delete, portion, since))
            after = ids[-1]
    except OperationalError as error:
        if sqlstate(error) not in LOCK_TROUBLE:
            raise
        raise IncompleteError(kind, deleted) from error


def _under_lock(queue: QueueConnection, act: Callable[[], T]) -> T:
    """Act while no job can be written; try again if transactions of the site hold the lock for longer than a moment."""
    for _ in range(TRIES - 1):
        try:
            return _act_under_lock(queue, act)
        except OperationalError as error:
            if sqlstate(error) not in LOCK_TROUBLE:
                raise
        # No event says when they end.
        time.sleep(PAUSE)
    return _act_under_lock(queue, act)


def _act_under_lock(queue: QueueConnection, act: Callable[[], T]) -> T:
    """Hold the lock in a transaction of its own, or until the end of the caller's transaction if there is one."""
    is_outermost = is_outside_transactions(queue.alias)
    with transaction.atomic(using=queue.alias):
        if is_outermost:
            sql_cleanup.begin_read_committed(queue.cursor)
        before = statement_limits.change_settings(queue.cursor, sql_cleanup.SETTINGS)
        sql_cleanup.lock_jobs(queue.cursor, schema=queue.schema)
        result = act()
        statement_limits.change_settings(queue.cursor, before)
    return result


def _valid_age(age: timedelta | None) -> float | None:
    if age is None:
        return None
    if not isinstance(age, timedelta):
        raise InvalidTypeError(f"failed_jobs_older_than: expected a timedelta, got {age!r}.")
    if age < timedelta(0):
        raise InvalidJobError(f"failed_jobs_older_than: expected zero or more, got {age!r}.")
    return age.total_seconds()


acleanup = async_variant(cleanup)
