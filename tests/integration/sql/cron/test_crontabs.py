"""Known crontabs: registering items, and reading their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.sql.cron import crontab_ticks, crontabs
from tests.conftest import RawConnection

TICK = datetime(2026, 11, 15, 4, 30, tzinfo=UTC)
LATER = TICK + timedelta(seconds=1)


@pytest.fixture
def cursor(raw_connection: Callable[..., RawConnection]) -> Iterator[psycopg.Cursor[Any]]:
    with raw_connection().cursor() as opened:
        yield opened


def test_registering_keeps_what_is_known(cursor: psycopg.Cursor[Any], worker_schema: str) -> None:
    crontabs.register(cursor, ["a"], schema=worker_schema, since=TICK)
    crontabs.register(cursor, ["b", "a"], schema=worker_schema, since=LATER)
    assert crontabs.known_crontabs(cursor, schema=worker_schema) == {
        "a": crontabs.KnownCrontab(identifier="a", known_since=TICK, last_execution=None),
        "b": crontabs.KnownCrontab(identifier="b", known_since=LATER, last_execution=None),
    }


def test_times_beyond_pythons_years_are_read_as_the_last_that_python_has(
    cursor: psycopg.Cursor[Any], worker_schema: str
) -> None:
    """An infinite last_execution is how an operator stops an item for ever."""
    cursor.execute(
        f"""insert into "{worker_schema}"._private_known_crontabs values ('report', '-infinity', 'infinity')""".encode()
    )
    known = crontabs.known_crontabs(cursor, schema=worker_schema)["report"]
    assert known.last_execution is not None
    assert (known.known_since.year, known.last_execution.year) == (1, 9999)
    item = CronItem("report", "30 4 * * *")
    assert not crontab_ticks.schedule(cursor, [item], TICK, schema=worker_schema, now=LATER).job_ids
