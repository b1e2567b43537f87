"""What a project's own tests need."""

from __future__ import annotations

from django.db import transaction

from django_graphile_worker.api.connection import open_queue
from django_graphile_worker.sql import cleanup, unused_names


def clear_queue(*, using: str | None = None, installation: str | None = None) -> int:
    """Delete every job, and all that is known of queues, workers, recurring tasks and statistics; the number of jobs.

    For tests that commit: Django empties only the tables of managed models after each, and the
    worker's are not among them. Running jobs go, too.
    """
    with open_queue(using, installation) as queue, transaction.atomic(using=queue.alias):
        queue.refuse_hidden_tables()
        unused_names.lock_names(queue.cursor, schema=queue.schema)
        return cleanup.delete_everything(queue.cursor, schema=queue.schema)
