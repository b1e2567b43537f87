"""The connection of a part: deadlines, and servers that it leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection

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
    database.deadline = 30.0
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


def test_the_worker_s_own_sessions_find_no_objects_of_others_and_read_committed_rows(
    raw_connection: Callable[..., Any],
) -> None:
    owner = raw_connection()
    name = owner.info.dbname
    database = Database("default", conf.current(), part="test")
    owner.execute(f"alter database \"{name}\" set default_transaction_isolation = 'serializable'".encode())
    owner.execute(f'alter database "{name}" set search_path = public'.encode())
    try:
        with database.cursor() as cursor:
            shown = cursor.execute(
                "select current_setting('search_path'), current_setting('transaction_isolation')"
            ).fetchone()
        assert shown == ("pg_catalog, pg_temp", "read committed")
    finally:
        owner.execute(f'alter database "{name}" reset default_transaction_isolation'.encode())
        owner.execute(f'alter database "{name}" reset search_path'.encode())
        database.close()


@pytest.mark.parametrize("limit", ["statement_timeout", "transaction_timeout"])
def test_time_limits_of_a_database__do_not_apply_to_the_worker_s_own_statements(
    raw_connection: Callable[..., Any], limit: str
) -> None:
    owner = raw_connection()
    if owner.info.server_version < 170000 and limit == "transaction_timeout":
        pytest.skip("needs PostgreSQL 17")
    name = connection.settings_dict["NAME"]
    database = Database("default", conf.current().replace(statement_timeout=45.0, worker_timeout=90.0), part="test")
    owner.execute(f'alter database "{name}" set {limit} = 50'.encode())
    try:
        with database.cursor() as cursor:
            cursor.execute("select pg_sleep(0.2)")
            assert cursor.execute("show statement_timeout").fetchone() == ("45s",)
    finally:
        owner.execute(f'alter database "{name}" reset {limit}'.encode())
        database.close()
