"""Helpers for the tests of a project."""

from __future__ import annotations

from django.db import transaction

from django_graphile_worker.api.connection import open_queue
from django_graphile_worker.sql import cleanup, unused_names


def clear_queue(*, using: str | None = None, installation: str | None = None) -> int:
    """Delete all jobs, queues, workers, recurring tasks and statistics; return the number of jobs.

    Call it in tests that commit: after each test Django empties only the tables of managed models, and the tables of
    the worker are not among them. Running jobs are deleted, too.
    """
    with open_queue(using, installation) as queue, transaction.atomic(using=queue.alias):
        queue.refuse_hidden_tables()
        unused_names.lock_names(queue.cursor, schema=queue.schema)
        return cleanup.delete_everything(queue.cursor, schema=queue.schema)
