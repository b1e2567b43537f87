"""A cursor that waits for answers inside libpq.

The driver's cursor waits in Python: it reads what has arrived, and waits for more, until the answer is complete. After
each of these waits its thread needs Python's global lock, which a thread that runs short jobs gives up every five
milliseconds only. The answer to a claim of two thousand jobs can arrive in several parts. The functions of libpq that
wait for the whole answer let other threads run meanwhile, and need the lock once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any

from psycopg.adapt import Transformer
from psycopg.pq import Format
from psycopg.pq.abc import PGresult

from django_graphile_worker.sql.codecs import text_array
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.database.prepared import PreparedStatement

_PARAMETER = re.compile(r"%\((\w+)\)s")


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
