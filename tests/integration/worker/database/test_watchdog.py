"""The watchdog, with a real connection."""

from __future__ import annotations

import psycopg
import pytest

from django_graphile_worker import conf
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
