"""The queries that a task waits for, on Django's connections of its thread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from psycopg.pq import TransactionStatus

from django_graphile_worker.worker import django_connections
from django_graphile_worker.worker.database.watchdog import cut

# Seconds. A server that answers processes the request to cancel in a few milliseconds.
CANCEL_TIMEOUT = 0.2


def cancel_queries(thread_id: int) -> bool:
    """Cancel on the server the queries that a thread waits for; return True if there were any.

    The server has the request when this function returns, so it concerns no later query of the connection.
    """
    has_cancelled = False
    for connection in _waiting(thread_id):
        has_cancelled = True
        with contextlib.suppress(Exception):
            connection.cancel_safe(timeout=CANCEL_TIMEOUT)
    return has_cancelled


def cut_queries(thread_id: int) -> None:
    """Shut down the connections on which a thread still waits: their server does not react to the request."""
    for connection in _waiting(thread_id):
        cut(connection)


def cut_connections(thread_id: int) -> None:
    """Shut down all connections of a thread, so that the server rolls back its transactions."""
    for watched in django_connections.connections_of(thread_id):
        raw = watched.wrapper.connection
        if getattr(raw, "pgconn", None) is not None:
            cut(raw)


def _waiting(thread_id: int) -> Iterator[Any]:
    for watched in django_connections.connections_of(thread_id):
        raw = watched.wrapper.connection
        if django_connections.transaction_status(watched.wrapper) == TransactionStatus.ACTIVE:
            yield raw
