"""A cursor on the connection of a test that keeps the worker's statements prepared in its session.

A suite calls ``run_jobs()`` in hundreds of tests on one connection. Prepared, its statements take half of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row

from django_graphile_worker.worker.database.blocking_cursor import dumped, numbered
from django_graphile_worker.worker.database.prepared import error_of, expect

_SIMPLE = frozenset({type(None), str, int, float, bool, datetime})
# By connection: the names of the statements that are prepared in its session, by their texts.
_prepared: WeakKeyDictionary[psycopg.Connection[Any], dict[str, bytes]] = WeakKeyDictionary()


class SessionCursor:
    """The part of a cursor that the functions of ``sql`` use."""

    def __init__(self, connection: psycopg.Connection[Any], *, prepares: bool) -> None:
        self.connection = connection
        # If the driver prepares statements itself, it may at any time deallocate all, also those of others.
        self._prepares = prepares and connection.prepare_threshold is None
        self._result: PGresult | None = None

    @cached_property
    def _driver(self) -> psycopg.Cursor[Any]:
        # Django's cursors write parameters into the statement. The functions of the worker take real parameters.
        return psycopg.Cursor(self.connection, row_factory=tuple_row)

    def execute(self, query: str, parameters: Any = None) -> None:
        self._result = None
        if self._prepares and isinstance(parameters, Mapping) and _SIMPLE.issuperset(map(type, parameters.values())):
            self._result = self._execute_prepared(query, parameters)
        else:
            self._driver.execute(query.encode(), parameters)

    def execute_numbered(self, text: str, parameters: Sequence[bytes | None]) -> PGresult:
        """Run a statement with the numbered parameters of libpq."""
        link = self.connection.pgconn
        values: Any = parameters  # None is null, which the driver's types do not say
        if self._prepares:
            result = link.exec_prepared(self._name_of(text), values)
        else:
            result = link.exec_params(text.encode(), values)
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise error_of(result)
        return result

    def _execute_prepared(self, query: str, parameters: Mapping[str, Any]) -> PGresult:
        text, names = numbered(query)
        return self.execute_numbered(text, [dumped(parameters[each]) for each in names])

    def _name_of(self, text: str) -> bytes:
        """Return the name of a prepared statement; prepare it if it is new in this session."""
        prepared = _prepared.setdefault(self.connection, {})
        name = prepared.get(text)
        if name is None:
            name = f"gw_test_{len(prepared)}".encode()
            expect(self.connection.pgconn.prepare(name, text.encode()), ExecStatus.COMMAND_OK)
            prepared[text] = name
        return name

    def fetchall(self) -> list[Any]:
        result, self._result = self._result, None
        if result is None:
            return self._driver.fetchall()
        reader = Transformer(self.connection)
        reader.set_pgresult(result)
        return reader.load_rows(0, result.ntuples, tuple)

    def fetchone(self) -> Any:
        return next(iter(self.fetchall()), None) if self._result is not None else self._driver.fetchone()

    @property
    def rowcount(self) -> int:
        return self._driver.rowcount if self._result is None else self._result.command_tuples or 0
