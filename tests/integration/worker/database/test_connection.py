"""The connection of a part: deadlines, and servers that it leaves."""

from __future__ import annotations

import psycopg
import pytest

from django_graphile_worker import conf
from django_graphile_worker.worker.database.connection import Database

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_statement_past_its_deadline_is_cancelled() -> None:
    settings = conf.current().replace(statement_timeout=1.0)
    database = Database("default", settings, part="test")
    with pytest.raises(psycopg.OperationalError), database.cursor() as cursor:
        # The server has been told as well: this is about who looks at the clock here.
        cursor.execute("set statement_timeout = 0")
        cursor.execute("select pg_sleep(200)")
    with database.cursor() as cursor:
        assert cursor.execute("select 1").fetchone() == (1,)
    database.close()


def test_a_read_only_server_is_left() -> None:
    database = Database("default", conf.current(), part="test")
    with database.cursor() as cursor:
        cursor.execute("set default_transaction_read_only = on")
    first = database.connection()
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), database.cursor() as cursor:
        cursor.execute("create table somewhere (id int)")
    assert database.connection() is not first
    database.close()
