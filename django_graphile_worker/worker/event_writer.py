"""Writes events that no statement of the worker writes, such as the end of an outage."""

from __future__ import annotations

import psycopg

from django_graphile_worker.sql.events import NewEvent, add
from django_graphile_worker.worker.database.connection import Database


def write_event(database: Database, event: NewEvent) -> bool:
    """Write an event; return False if it is not written: an error must not end what the worker does."""
    try:
        with database.cursor() as cursor:
            return add(cursor, event, schema=database.schema)
    except psycopg.Error:
        return False
