"""Empties the tables of the worker, for tests that commit."""

from __future__ import annotations

from django.db import transaction

from django_graphile_worker.api.connection import open_queue
from django_graphile_worker.sql import cleanup


def clear_queue(*, using: str | None = None, installation: str | None = None) -> int:
    """Delete all jobs, queues, workers, recurring tasks and statistics; return the number of jobs.

    Call it in tests that commit and set ``available_apps`` or ``serialized_rollback``: after all other tests that
    commit, the app empties the tables anyway. Running jobs are deleted, too.
    """
    with open_queue(using, installation) as queue, transaction.atomic(using=queue.alias):
        queue.refuse_hidden_tables()
        cleanup.lock_jobs(queue.cursor, schema=queue.schema)
        return cleanup.delete_everything(queue.cursor, schema=queue.schema)
