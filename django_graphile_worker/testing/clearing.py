"""Empties the tables of the worker, for tests that commit."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import mail
from django.db import Error, connections, transaction
from django.db.models.signals import post_migrate

from django_graphile_worker.api.connection import open_place, open_queue
from django_graphile_worker.routing import APP_LABEL, places_in
from django_graphile_worker.sql import cleanup
from django_graphile_worker.sql.install import catalog


def clear_queue(*, using: str | None = None, installation: str | None = None) -> int:
    """Delete all jobs, queues, workers, recurring tasks and statistics; return the number of jobs.

    Call it in tests that commit and set ``available_apps`` or ``serialized_rollback``: after all other tests that
    commit, the tables are emptied anyway, as soon as ``django_graphile_worker.testing`` is imported. Running jobs are
    deleted, too.
    """
    with open_queue(using, installation) as queue, transaction.atomic(using=queue.alias):
        queue.refuse_hidden_tables()
        cleanup.lock_jobs(queue.cursor, schema=queue.schema)
        return cleanup.delete_everything(queue.cursor, schema=queue.schema)


def clear_after_flush() -> None:
    """Empty the tables of the worker whenever Django empties those of the models, after each test that commits.

    Django flushes only the tables of managed models, and then sends ``post_migrate``.
    """
    post_migrate.connect(_clear_if_flushed, dispatch_uid="django_graphile_worker.testing")


def _clear_if_flushed(sender: AppConfig, using: str, **arguments: Any) -> None:
    # Only migrate passes on its plan. Outside a test run, flush leaves jobs alone.
    if sender.label != APP_LABEL or "plan" in arguments or not _is_test_run():
        return
    if connections[using].vendor != "postgresql":
        return
    for place in places_in(using):
        try:
            with open_place(place) as queue, transaction.atomic(using=queue.alias):
                if "_private_jobs" in catalog.relations(queue.cursor, schema=queue.schema):
                    cleanup.delete_everything(queue.cursor, schema=queue.schema)
        except Error:
            # The test has broken the schema on purpose, or holds a lock on it.
            continue


def _is_test_run() -> bool:
    """Return whether the test environment of Django is set up, which collects mail in an outbox."""
    return hasattr(mail, "outbox")
