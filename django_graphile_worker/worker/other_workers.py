"""Notifies the other workers of jobs that they may claim."""

from __future__ import annotations

import contextlib

import psycopg

from django_graphile_worker.worker.database.connection import Database


def wake_other_workers(database: Database, count: int) -> None:
    """Notify workers of this many jobs. If that fails, they find the jobs by polling."""
    # Late import: the first job need not wait for the statements of recovery.
    from django_graphile_worker.sql.recovery import wake_workers

    with contextlib.suppress(psycopg.Error), database.cursor() as cursor:
        wake_workers(cursor, count, schema=database.schema)
