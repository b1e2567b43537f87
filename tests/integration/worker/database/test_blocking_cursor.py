"""A cursor that waits inside libpq, and reads and writes what a cursor of the driver does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from django_graphile_worker import conf
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.database.prepared import BlockingCursor

pytestmark = pytest.mark.django_db(transaction=True)


class OtherClock(datetime):
    """What a library that replaces the clock in tests makes."""


PARAMETERS: dict[str, Any] = {
    "number": 2**40,
    "text": 'quotes " and \\ and é',
    "texts": ["a b", 'c"d', "null", ""],
    "ratio": 0.1,
    "is_set": True,
    "nothing": None,
    "moment": OtherClock(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
}
# One parameter is used twice.
ECHO = """select %(number)s::bigint, %(text)s::text, %(texts)s::text[], %(ratio)s::float8, %(is_set)s::boolean,
    %(nothing)s::int[], %(moment)s::timestamptz, %(number)s::bigint + 1, '{"a": [1]}'::json"""


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database("default", conf.current().replace(statement_timeout=5.0), part="test")
    yield database
    database.close()


def run(cursor: BlockingCursor, query: str, **parameters: Any) -> list[Any]:
    with cursor.usable() as usable:
        usable.execute(query, parameters)
        return list(usable.fetchall())


def test_values__are_those_of_a_cursor_of_the_driver(database: Database) -> None:
    with database.cursor() as cursor:
        expected = cursor.execute(ECHO.encode(), PARAMETERS).fetchall()
    assert run(BlockingCursor(database), ECHO, **PARAMETERS) == expected


def test_statements__are_prepared_once_for_each_session(database: Database) -> None:
    cursor = BlockingCursor(database)
    names = "select name from pg_prepared_statements where name like 'gw_blocking_%%' order by name"
    for _ in range(2):
        for number in (1, 2):
            assert run(cursor, "select %(number)s::int", number=number) == [(number,)]
            assert run(cursor, "select %(number)s::text", number=number) == [(str(number),)]
        with database.cursor() as plain:
            assert plain.execute(names.encode()).fetchall() == [("gw_blocking_0",), ("gw_blocking_1",)]
        database.close()


def test_error__leaves_no_old_rows(database: Database) -> None:
    cursor = BlockingCursor(database)
    query = "select 1 / %(number)s::int"
    with cursor.usable() as usable:
        usable.execute(query, {"number": 1})
        with pytest.raises(psycopg.errors.DivisionByZero):
            usable.execute(query, {"number": 0})
        assert usable.fetchall() == []
    assert run(cursor, query, number=1) == [(1,)]


def test_pooler__gets_the_cursor_of_the_driver(database: Database) -> None:
    """A session that a pooler shares keeps no prepared statement."""
    cursor = BlockingCursor(database)
    database.connection()
    database._is_direct = False
    with cursor.usable() as usable:
        assert isinstance(usable, psycopg.Cursor)
