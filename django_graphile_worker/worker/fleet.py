"""What one worker tells the others of the fleet: its id, that there are jobs, and events for operators."""

from __future__ import annotations

import contextlib
import secrets

import psycopg

from django_graphile_worker.sql.events import NewEvent, add
from django_graphile_worker.sql.workers import WORKER_PREFIX, wake_workers
from django_graphile_worker.worker.database.connection import Database


def new_worker_id() -> str:
    """Return an id that was never used before: a restarted worker must not be mistaken for the dead worker."""
    return f"{WORKER_PREFIX}{secrets.token_hex(9)}"


def wake_other_workers(database: Database, count: int) -> None:
    """Notify workers of this many jobs. If that fails, they find the jobs by polling."""
    with contextlib.suppress(psycopg.Error), database.cursor() as cursor:
        wake_workers(cursor, count, schema=database.schema)


def write_event(database: Database, event: NewEvent) -> bool:
    """Write an event; return False if the database fails, because an error must not end what the worker does."""
    try:
        with database.cursor() as cursor:
            add(cursor, event, schema=database.schema)
        return True
    except psycopg.Error:
        return False
