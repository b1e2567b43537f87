"""The worker's own connections to PostgreSQL.

Django's connections belong to the tasks. The worker itself keeps plain psycopg
connections, one per part, built from the same ``settings.DATABASES`` entry. They
rely on no state between statements, so a transaction pooler in between is fine.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import psycopg
from django.db import connections
from psycopg import errors, sql

from django_graphile_worker.conf import Settings
from django_graphile_worker.sql.session import begin_limited, limit_transaction, set_up_session
from django_graphile_worker.worker.database.watchdog import watchdog

# Seconds: a lost server is detected within half a minute, instead of the hours of the
# system's own defaults.
LIVENESS = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
# Seconds: libpq rounds shorter timeouts up to this.
SHORTEST_CONNECT_TIMEOUT = 2
# Django's own parameters, which plain psycopg does not accept or the worker does not use.
DJANGO_ONLY = ("context", "cursor_factory", "prepare_threshold")

# Errors of a pooler that sends each statement to another server connection, where a prepared statement is missing, or
# another client has prepared another statement under its name.
POOLER_CONFUSION = (errors.DuplicatePreparedStatement, errors.InvalidSqlStatementName, errors.ProtocolViolation)
# Errors of a server that answers but accepts no writes: after a fail-over the old address may be
# a standby. Only a new connection can find the new primary.
WRONG_SERVER = (errors.ReadOnlySqlTransaction, errors.CannotConnectNow, errors.AdminShutdown)


class Database:
    """One autocommit connection, which is opened again when it breaks."""

    def __init__(self, alias: str, settings: Settings, *, part: str, deadline: float | None = None) -> None:
        self.alias = alias
        self.schema = settings.schema
        self.deadline = settings.statement_timeout if deadline is None else deadline
        # A part with a deadline of its own must not wait longer than that for a connection either.
        self._connect_timeout = None if deadline is None else max(math.ceil(deadline), SHORTEST_CONNECT_TIMEOUT)
        self._cuts_at_once = deadline is not None
        self._part = part
        self._prepares = settings.prepared_statements
        self._connection: psycopg.Connection[Any] | None = None
        self._cursor: psycopg.Cursor[Any] | None = None
        self._is_direct = True
        # The names of the statements that PreparedStatement has prepared in the current session.
        self.prepared: set[bytes] = set()

    @contextmanager
    def cursor(self) -> Iterator[psycopg.Cursor[Any]]:
        """Return a cursor under the deadline; close the connection after an error that makes it unusable."""
        connection = self.connection()
        try:
            with (
                watchdog.watch(connection, self.deadline, cuts_at_once=self._cuts_at_once),
                self._limited(connection),
            ):
                yield self._reused_cursor(connection)
        except psycopg.Error as error:
            self.note_error(error, connection)
            raise

    def note_error(self, error: psycopg.Error, connection: psycopg.Connection[Any]) -> None:
        """Note what an error shows about the server, and close the connection if the error makes it unusable."""
        if isinstance(error, POOLER_CONFUSION):
            self._prepares = False
            self.close()
        elif isinstance(error, WRONG_SERVER):
            self.close()
        else:
            self._close_if_unusable(connection)

    @property
    def keeps_statements(self) -> bool:
        """Does the session keep prepared statements and settings from one statement to the next?"""
        return self._prepares and self._is_direct

    @property
    def is_direct(self) -> bool:
        """Does the session belong to this connection alone? Behind a pooler it has another process id."""
        return self._is_direct

    def _close_if_unusable(self, connection: psycopg.Connection[Any]) -> None:
        """Close the connection if its state is unusable: a server that disappears often leaves no error code."""
        if connection.closed or connection.broken or not is_idle(connection):
            self.close()

    def connection(self) -> psycopg.Connection[Any]:
        """Return the connection, opened now if there is none."""
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        return self._connection

    def _reused_cursor(self, connection: psycopg.Connection[Any]) -> psycopg.Cursor[Any]:
        # A cursor caches, after its first statements, how to write and read their values.
        if self._cursor is None or self._cursor.connection is not connection:
            self._cursor = connection.cursor(binary=True)
        return self._cursor

    @property
    def current(self) -> psycopg.Connection[Any] | None:
        """The open connection; None if the next statement opens a connection."""
        connection = self._connection
        return None if connection is None or connection.closed else connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _connect(self) -> psycopg.Connection[Any]:
        parameters = connection_parameters(self.alias, part=self._part)
        if self._connect_timeout is not None:
            parameters["connect_timeout"] = min(self._connect_timeout, int(parameters["connect_timeout"]))
        connection = psycopg.connect(**parameters, autocommit=True, prepare_threshold=0 if self._prepares else None)
        try:
            with watchdog.watch(connection, self.deadline, cuts_at_once=self._cuts_at_once):
                self._set_up(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: psycopg.Connection[Any]) -> None:
        self.prepared.clear()
        role = connections.settings[self.alias].get("OPTIONS", {}).get("assume_role")
        if role:
            connection.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
        with connection.cursor() as cursor:
            self._is_direct = set_up_session(cursor, self.deadline, backend_pid=connection.info.backend_pid)
        if not self._is_direct:
            # The driver gives all its connections the same names for statements. In a session that a pooler shares,
            # a name can stand for the statement of another client, which would run instead.
            connection.prepare_threshold = None

    def _limited(self, connection: psycopg.Connection[Any]) -> AbstractContextManager[object]:
        # Behind a pooler, every session has the limits and the search_path that its role and database have.
        return nullcontext() if self._is_direct else limited_transaction(connection, self.deadline)


@contextmanager
def limited_transaction(connection: psycopg.Connection[Any], seconds: float) -> Iterator[None]:
    """Run the block in one transaction, with the deadline as its limit, and without the search_path of the role."""
    is_outermost = is_idle(connection)
    with connection.cursor() as cursor:
        (begin_limited if is_outermost else limit_transaction)(cursor, seconds)
    try:
        yield
    except BaseException:
        if is_outermost:
            with contextlib.suppress(psycopg.Error):
                connection.rollback()
        raise
    if is_outermost:
        connection.commit()


def connection_parameters(alias: str, *, part: str) -> dict[str, Any]:
    """Return the parameters with which psycopg connects to the database that Django calls ``alias``."""
    wrapper: Any = connections.create_connection(alias)
    parameters = {key: value for key, value in wrapper.get_connection_params().items() if key not in DJANGO_ONLY}
    return {**LIVENESS, "application_name": f"graphile_worker {part}", **parameters}


def is_idle(connection: psycopg.Connection[Any]) -> bool:
    status = connection.info.transaction_status
    return bool(status == psycopg.pq.TransactionStatus.IDLE)
