"""A scheduler on a clock and a connection that the test sets: real statements, simulated times and failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import psycopg

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.registry import Registry
from django_graphile_worker.worker.scheduling.scheduler import Scheduler
from tests.conftest import RawConnection


class FlakyCursor:
    """A cursor that records its statements, and fails before or after a chosen statement."""

    def __init__(self, cursor: psycopg.Cursor[Any], source: FlakySource) -> None:
        self._cursor = cursor
        self._source = source

    def execute(self, statement: Any, parameters: Any = None) -> None:
        source = self._source
        source.statements.append(str(statement).split("*/")[0])
        countdown = source.countdown = source.countdown - 1
        if countdown == 0 and not source.fails_after:
            raise psycopg.OperationalError("the connection was lost before the statement arrived")
        self._cursor.execute(statement, parameters)
        if countdown == 0:
            raise psycopg.OperationalError("the connection was lost after the statement had committed")

    def fetchone(self) -> Any:
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()


class FlakySource:
    """A source of cursors that fails at a chosen statement, counted from now."""

    def __init__(self, connection: RawConnection) -> None:
        self.connection = connection
        self.statements: list[str] = []
        self.countdown = 0
        self.fails_after = False
        self.is_down = False

    def fail_at(self, statement: int, *, after: bool) -> None:
        self.countdown, self.fails_after = statement, after

    @contextmanager
    def cursor(self) -> Iterator[FlakyCursor]:
        if self.is_down:
            raise psycopg.OperationalError("the server is gone")
        with self.connection.cursor() as cursor:
            yield FlakyCursor(cursor, self)

    def close(self) -> None:
        """Do nothing: the connection belongs to the test."""


def build_scheduler(
    source: FlakySource,
    *,
    schema: str,
    now: Callable[[], datetime | None],
    send: Callable[..., None],
    on_trouble: Callable[..., None],
    registry: Registry | None = None,
    items: Sequence[CronItem] = (),
    every: dict[str, timedelta] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Scheduler:
    """Return the scheduler of a worker that has nothing else."""
    worker: Any = SimpleNamespace(
        place=SimpleNamespace(using="default", installation="default"),
        settings=SimpleNamespace(schema=schema, notify=True),
        registry=registry or Registry(),
        cron_items=tuple(items),
        every=every or {},
        now=now,
        reports=SimpleNamespace(send=send, database_trouble=on_trouble),
        database=lambda part: source,
    )
    return Scheduler(worker, clock=clock)
