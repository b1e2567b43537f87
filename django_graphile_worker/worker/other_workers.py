"""Notifies the other workers of jobs that they may claim."""

from __future__ import annotations

import contextlib

import psycopg

from django_graphile_worker.sql.workers import wake_workers
from django_graphile_worker.worker.database.connection import Database


def wake_other_workers(database: Database, count: int) -> None:
    """Notify workers of this many jobs. If that fails, they find the jobs by polling."""
    with contextlib.suppress(psycopg.Error), database.cursor() as cursor:
        wake_workers(cursor, count, schema=database.schema)
