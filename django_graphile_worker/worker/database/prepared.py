"""One prepared statement, run without the driver's cursor. Part of the fast path, see ``fetching.fast_path``.

A cursor looks up how to write each value and how to read it, keeps its own list of
prepared statements, and waits in Python. For a batch that is nothing; for the single job
that an idle worker waits for it is a tenth of the time from its commit to its start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGresult

from django_graphile_worker.sql.session import configure_session
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.database.watchdog import watchdog


class PreparedStatement:
    """A statement that is prepared once for each session, under settings that stay with the session."""

    def __init__(
        self,
        database: Database,
        name: str,
        text: str,
        *,
        settings: Mapping[str, str],
        result_format: Format = Format.TEXT,
    ) -> None:
        self._database = database
        self._name = name.encode()
        self._text = text.encode()
        self._settings = settings
        self._result_format = result_format
        self._prepared_on: psycopg.Connection[Any] | None = None

    @property
    def is_possible(self) -> bool:
        """Can the statement run? Not through a pooler that sends each statement to another session."""
        prepared_on = self._prepared_on
        return (prepared_on is not None and prepared_on is self._database.current) or self._database.keeps_statements

    def __call__(self, parameters: Sequence[bytes | None]) -> PGresult:
        connection = self._prepared_on
        if connection is None or connection is not self._database.current:
            connection = self._database.connection()
        token = watchdog.begin(connection, self._database.deadline)
        try:
            if connection is not self._prepared_on:
                self._prepare(connection)
            return self._run(connection, parameters)
        except psycopg.Error as error:
            self._database.note_error(error, connection)
            raise
        finally:
            watchdog.end(token)

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        if self._name not in self._database.prepared:
            if self._settings:
                with connection.cursor() as cursor:
                    configure_session(cursor, self._settings)
            expect(connection.pgconn.prepare(self._name, self._text), ExecStatus.COMMAND_OK)
            self._database.prepared.add(self._name)
        self._prepared_on = connection

    def _run(self, connection: psycopg.Connection[Any], parameters: Sequence[bytes | None]) -> PGresult:
        link = connection.pgconn
        result = link.exec_prepared(
            self._name,
            parameters,  # type: ignore[arg-type]  # None is null
            result_format=self._result_format,
        )
        # Notifications that arrived meanwhile have been read with the answer: the socket will not show them.
        while notice := link.notifies():
            if link.notify_handler is not None:
                link.notify_handler(notice)
        return expect(result, ExecStatus.TUPLES_OK)


def expect(result: PGresult, status: ExecStatus) -> PGresult:
    """Return the result if it has this status; otherwise raise its error."""
    if result.status != status:
        raise error_of(result)
    return result


def error_of(result: PGresult) -> psycopg.Error:
    """Return the error that a cursor would raise. An error without a code comes from the connection."""
    message = result.get_error_message()
    code = result.error_field(DiagnosticField.SQLSTATE)
    if code is None:
        return psycopg.OperationalError(message)
    try:
        return errors.lookup(code.decode())(message)
    except KeyError:
        return psycopg.DatabaseError(message)
