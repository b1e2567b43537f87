"""Which statements make a session suspect."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import sql

from django_graphile_worker.worker.django_connections.session_changing_sql import traits_of


@pytest.mark.parametrize(
    "statement",
    [
        "SET statement_timeout = 5",
        "set session work_mem = '1MB'",
        "  /* a comment */ SET search_path TO x",
        "-- why\nSET search_path TO x",
        "SELECT 1; SET search_path TO x",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        "SET ROLE somebody",
        "RESET ALL",
        "DISCARD ALL",
        "select set_config('a.b', 'c', false)",
        "select set_config(%s, %s, %s)",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_try_advisory_lock_shared(1, 2)",
        "CREATE TEMP TABLE t ()",
        "create temporary view v as select 1",
        "select 1 as a into temp t",
        "LISTEN channel",
        "PREPARE p AS SELECT 1",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "DO $$ begin end $$",
        "LOAD 'auto_explain'",
        b"SET x.y = 1",
        sql.SQL("SET {} = 1").format(sql.Identifier("work_mem")),
    ],
)
def test_statement__makes_the_session_suspect(statement: Any) -> None:
    assert traits_of(statement).may_change_session


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM shop_order",
        "UPDATE shop_order SET total = 1",
        "SELECT 1 OFFSET 3",
        "SET LOCAL statement_timeout = 5",
        "set /* x */ local work_mem = '1MB'",
        "SET CONSTRAINTS ALL IMMEDIATE",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "select set_config('a.b', %s, true)",
        "SELECT pg_advisory_xact_lock(1)",
        "PREPARE TRANSACTION 'x'",
        "SELECT 'template' FROM temperature",
        "SAVEPOINT s",
        "/* gw:add */ select set_config('graphile_worker.notify', 'off', %s)",
        sql.SQL("SELECT {}").format(sql.Identifier("x")),
        "INSERT INTO t VALUES " + "(%s)," * 10_000,
    ],
)
def test_statement__leaves_the_session_alone(statement: Any) -> None:
    assert not traits_of(statement).may_change_session
