"""Prepared statements that run without the driver's cursor.

A cursor looks up how to write each value and how to read it, keeps its own list of prepared statements, and waits in
Python: it reads what has arrived, and waits for more, until the answer is complete. For most statements that costs
little. For the single job that an idle worker waits for, it is a tenth of the time from its commit to its start
(``fetching.claimer``). And the answer to a claim of two thousand jobs can arrive in several parts. After each of them
a thread needs Python's global lock, which a thread that runs short jobs gives up every five milliseconds only. The
functions of libpq that wait for the whole answer let other threads run meanwhile, and need the lock once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any

import psycopg
from psycopg import errors
from psycopg.adapt import Transformer
from psycopg.pq import DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGresult

from django_graphile_worker.sql.codecs import text_array
from django_graphile_worker.sql.session import configure_session
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.database.watchdog import watchdog

_PARAMETER = re.compile(r"%\((\w+)\)s")


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
            return self._execute(connection, parameters)
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

    def _execute(self, connection: psycopg.Connection[Any], parameters: Sequence[bytes | None]) -> PGresult:
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


class BlockingCursor:
    """The part of a cursor that the functions of ``sql`` use, for statements whose parameters all have casts."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._statements: dict[str, PreparedStatement] = {}
        self._result: PGresult | None = None

    @contextmanager
    def usable(self) -> Iterator[Any]:
        """Return this cursor, or a cursor of the driver if the session keeps no prepared statements."""
        self._database.connection()
        if self._database.keeps_statements:
            yield self
        else:
            with self._database.cursor() as cursor:
                yield cursor

    def execute(self, query: str, parameters: Mapping[str, Any]) -> None:
        text, names = numbered(query)
        statement = self._statements.get(text)
        if statement is None:
            name = f"gw_blocking_{len(self._statements)}"
            statement = self._statements[text] = PreparedStatement(
                self._database, name, text, settings={}, result_format=Format.BINARY
            )
        self._result = None
        self._result = statement([dumped(parameters[name]) for name in names])

    def fetchall(self) -> list[Any]:
        result, self._result = self._result, None
        if result is None:
            return []
        reader = Transformer(self._database.current)
        reader.set_pgresult(result)
        return reader.load_rows(0, result.ntuples, tuple)

    def fetchone(self) -> Any:
        return next(iter(self.fetchall()), None)


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


@cache
def numbered(query: str) -> tuple[str, tuple[str, ...]]:
    """Return the query with the numbered parameters of libpq, and the names of the parameters in this order."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(query)))
    return _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", query), names


def dumped(value: Any) -> bytes | None:
    """Return the text of a value. Libraries that replace the clock in tests pass subclasses of datetime."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.isoformat().encode()
    return (text_array(value) if isinstance(value, list) else str(value)).encode()
