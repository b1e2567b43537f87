"""Django's connection of the calling thread, in the form in which the parts of a worker use a connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db.transaction import TransactionManagementError
from psycopg.pq import TransactionStatus

from django_graphile_worker.routing import Place, queue_connection
from django_graphile_worker.testing.in_process.session_cursor import SessionCursor
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.django_connections import transaction_status


class CallerDatabase(Database):
    """The connection of a test. It stays in the transaction of the test, and is never closed.

    Statements go past Django's cursor: they are those of a worker, so ``assertNumQueries()`` does not count them.
    """

    def __init__(self, place: Place) -> None:
        self.alias = place.using
        self.schema = place.settings.schema
        self.wrapper = queue_connection(place.using)
        self.prepared = set()
        self._prepares = place.settings.prepared_statements
        self._session_cursor: SessionCursor | None = None

    def begin(self) -> None:
        """Open the connection; raise the error of a test that may not use the database, or whose transaction failed."""
        if "cursor" in vars(self.wrapper):
            # A test without a database has replaced the method by one that raises.
            self.wrapper.cursor()
        self.wrapper.ensure_connection()
        self.wrapper.validate_no_broken_transaction()
        if transaction_status(self.wrapper) == TransactionStatus.INERROR:
            raise TransactionManagementError(
                "run_jobs(): expected a transaction that can be used, got one in which a statement has failed. Put the "
                "statement that may fail into an atomic() block of its own."
            )

    @property
    def is_in_transaction(self) -> bool:
        return bool(self.wrapper.in_atomic_block)

    @property
    def keeps_statements(self) -> bool:
        return False

    @property
    def current(self) -> psycopg.Connection[Any] | None:
        connection: psycopg.Connection[Any] | None = self.wrapper.connection
        return connection

    def connection(self) -> psycopg.Connection[Any]:
        self.wrapper.ensure_connection()
        connection: psycopg.Connection[Any] = self.wrapper.connection
        return connection

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        connection = self.connection()
        if self._session_cursor is None or self._session_cursor.connection is not connection:
            self._session_cursor = SessionCursor(connection, prepares=self._prepares)
        yield self._session_cursor

    @contextmanager
    def cursor_of_job(self) -> Iterator[Any]:
        """Yield a cursor in the transaction of a job, which refuses and raises what Django's cursor does."""
        with self.wrapper.wrap_database_errors, self.cursor() as cursor:
            if cursor.connection.closed:
                raise psycopg.OperationalError("the connection is closed")
            self.wrapper.validate_no_broken_transaction()
            yield cursor

    def close(self) -> None:
        """Leave the connection open: it belongs to the test."""
