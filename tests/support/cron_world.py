"""Workers with a crontab on a clock that the test sets: real statements, simulated times and failures."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.worker.maintenance.cron import Cron
from tests.conftest import RawConnection

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


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
        self._connection = connection
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
        with self._connection.cursor() as cursor:
            yield FlakyCursor(cursor, self)

    def close(self) -> None:
        """Do nothing: the connection belongs to the test."""


class CronWorld:
    """A database, a clock, and any number of workers."""

    def __init__(self, connect: Callable[..., RawConnection], schema: str, start: datetime) -> None:
        self.schema = schema
        self.now = start
        self.connection = connect(options="-c synchronous_commit=off")
        self.sent: list[tuple[Any, dict[str, Any]]] = []
        self.troubles: list[tuple[str, Exception]] = []

    def worker(self, items: list[CronItem], **options: Any) -> tuple[Cron, FlakySource]:
        source = FlakySource(self.connection)
        defaults: dict[str, Any] = {
            "database_now": lambda: self.now,
            # No part may use the clock of the machine.
            "now": lambda: datetime(1999, 1, 1, tzinfo=UTC),
            "send": lambda signal, **arguments: self.sent.append((signal, arguments)),
            "on_trouble": lambda name, error, delay: self.troubles.append((name, error)),
        }
        cron = Cron(items=items, database=source, schema=self.schema, **(defaults | options))
        return cron, source

    def settle(self, cron: Cron, most: int = 1000) -> int:
        """Step until there is nothing to do for the moment, and return the number of steps."""
        for count in itertools.count(1):
            if cron.step() > 0.6 or count >= most:
                return count
        raise AssertionError("unreachable")

    def fired(self) -> Counter[tuple[str, datetime]]:
        """Return how many jobs were added for each tick of each task."""
        rows = self.connection.execute(
            f"""select tasks.identifier, jobs.payload -> '_cron' ->> 'ts'
            from "{self.schema}"._private_jobs as jobs
            join "{self.schema}"._private_tasks as tasks on tasks.id = jobs.task_id""".encode()
        )
        return Counter((task, datetime.fromisoformat(stamp)) for task, stamp in rows)

    def ticks(self, task: str) -> list[str]:
        """Return the ticks for which a task was fired, as HH:MM, in order."""
        return [
            f"{tick:%H:%M}"
            for (name, tick), count in sorted(self.fired().items())
            for _ in range(count)
            if name == task
        ]

    def backfilled(self, task: str) -> dict[str, bool]:
        rows = self.connection.execute(
            f"""select jobs.payload -> '_cron' from "{self.schema}"._private_jobs as jobs
            join "{self.schema}"._private_tasks as tasks on tasks.id = jobs.task_id
            where tasks.identifier = %s order by jobs.id""".encode(),
            [task],
        )
        return {cron["ts"][11:16]: cron["backfilled"] for (cron,) in rows}
