"""The watchdog, with a real connection."""

from __future__ import annotations

import psycopg
import pytest

from django_graphile_worker import conf
from django_graphile_worker.worker.database import connection as connection_module
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.database.watchdog import Watchdog

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_cannot_be_cancelled_is_cut() -> None:
    database = Database("default", conf.current(), part="test")
    now = [0.0]
    watchdog = Watchdog(clock=lambda: now[0])
    connection = database.connection()
    with watchdog.watch(connection, 1.0):
        now[0] = 2.0
        watchdog.check_deadlines()
        watchdog.check_deadlines()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    database.close()


def test_a_cut_that_comes_after_the_result_costs_no_other_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    watchdog = Watchdog(clock=lambda: now[0])
    monkeypatch.setattr(connection_module, "watchdog", watchdog)
    database = Database("default", conf.current(), part="test")
    with database.cursor() as cursor:
        cursor.execute("select 1")
        now[0] = 1000.0
        watchdog.check_deadlines()
        watchdog.check_deadlines()
    assert database.current is None
    with database.cursor() as cursor:
        assert cursor.execute("select 2").fetchone() == (2,)
    database.close()
