"""The rows of added jobs, to compare the ways of adding them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from tests.support.operating import execute

# All columns but the id, with the names of the task and the queue.
ROWS = """
    select tasks.identifier, job_queues.queue_name, jobs.payload::text, jobs.priority, jobs.run_at, jobs.attempts,
        jobs.max_attempts, jobs.last_error, jobs.created_at, jobs.updated_at, jobs.key, jobs.locked_at, jobs.locked_by,
        jobs.revision, jobs.flags::text, jobs.is_available
    from {schema}._private_jobs as jobs
        join {schema}._private_tasks as tasks on tasks.id = jobs.task_id
        left join {schema}._private_job_queues as job_queues on job_queues.id = jobs.job_queue_id
    order by jobs.id"""


@contextmanager
def undone() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def rows_after(add: Callable[[], Any]) -> list[Any]:
    """Return the rows that adding jobs leaves, and undo it; times are the same within the transaction."""
    with undone():
        add()
        return execute(ROWS)
