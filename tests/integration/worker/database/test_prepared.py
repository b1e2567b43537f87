"""A statement that goes to the server without the driver's cursor, and keeps all that a cursor promises."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from django_graphile_worker import conf
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.database.prepared import PreparedStatement
from tests.conftest import WAIT_TIMEOUT, RawConnection

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database("default", conf.current().replace(statement_timeout=30.0), part="test")
    yield database
    database.close()


def direct(database: Database, text: str) -> PreparedStatement:
    return PreparedStatement(database, "gw_test", text, settings={"enable_seqscan": "off", "work_mem": "4242kB"})


def ask(database: Database, text: str) -> Any:
    with database.cursor() as cursor:
        row = cursor.execute(text.encode()).fetchone()
        return row and row[0]


def test_is_prepared_once_for_each_session_with_its_settings(database: Database) -> None:
    statement = direct(database, "select $1::int + 1, current_setting('work_mem'), $2::text")
    for number in (1, 2, 3):
        result = statement([b"%d" % number, None])
        assert [result.get_value(0, column) for column in range(3)] == [b"%d" % (number + 1), b"4242kB", None]
    assert ask(database, "select count(*) from pg_prepared_statements where name = 'gw_test'") == 1
    database.close()
    assert statement([b"1", None]).get_value(0, 1) == b"4242kB"


def test_a_statement_past_its_deadline_is_cancelled(database: Database) -> None:
    statement = direct(database, "select set_config('statement_timeout', '0', false), pg_sleep($1::int)")
    statement([b"0"])
    database.deadline = 1.0
    with pytest.raises(psycopg.errors.QueryCanceled):
        statement([b"200"])
    database.deadline = 30.0
    assert statement([b"0"]).ntuples == 1


def test_a_connection_that_breaks_is_replaced(database: Database, raw_connection: Callable[..., RawConnection]) -> None:
    statement = direct(database, "select pg_backend_pid(), $1::int")
    process = statement([b"0"]).get_value(0, 0)
    raw_connection().execute("select pg_terminate_backend(%s, 60000)", [int(process or 0)])
    with pytest.raises(psycopg.OperationalError):
        statement([b"0"])
    assert database.current is None
    assert statement([b"0"]).get_value(0, 0) != process


def test_what_is_announced_meanwhile_is_heard(
    database: Database, raw_connection: Callable[..., RawConnection], wait_until: Wait
) -> None:
    heard: list[str] = []
    with database.cursor() as cursor:
        cursor.execute("listen news")
    database.connection().add_notify_handler(lambda notice: heard.append(notice.payload))
    other = raw_connection()
    other.execute("select pg_advisory_lock(4711)")
    statement = direct(database, "select 1 from pg_advisory_lock_shared($1::int)")
    thread = threading.Thread(target=statement, args=([b"4711"],))
    thread.start()
    waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = 4711"
    waits += " and database = (select oid from pg_database where datname = current_database())"
    wait_until(lambda: other.execute(waits).fetchone() == (1,))
    other.execute("notify news, 'hot'")
    other.execute("select pg_advisory_unlock(4711)")
    thread.join(WAIT_TIMEOUT)
    # The server sends it with its next answer, if not with this one.
    statement([b"4712"])
    assert heard == ["hot"]


def test_is_not_possible_in_sessions_that_are_not_ours(database: Database) -> None:
    statement = direct(database, "select 1")
    database.connection()
    assert statement.is_possible
    database._is_direct = False
    assert not statement.is_possible
