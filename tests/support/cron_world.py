"""Workers with a crontab on a clock that the test sets: real statements, simulated times and failures."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.worker.scheduling.scheduler import Scheduler
from tests.conftest import RawConnection
from tests.support.scheduling import FlakySource, build_scheduler

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


class CronWorld:
    """A database, a clock, and any number of workers."""

    def __init__(self, connect: Callable[..., RawConnection], schema: str, start: datetime) -> None:
        self.schema = schema
        self.now = start
        self.connection = connect(options="-c synchronous_commit=off")
        self.sent: list[tuple[Any, dict[str, Any]]] = []
        self.troubles: list[tuple[str, Exception]] = []

    def worker(self, items: list[CronItem], **options: Any) -> tuple[Scheduler, FlakySource]:
        source = FlakySource(self.connection)
        defaults: dict[str, Any] = {
            "now": lambda: self.now,
            "send": lambda signal, **arguments: self.sent.append((signal, arguments)),
            "on_trouble": lambda name, error, delay: self.troubles.append((name, error)),
        }
        scheduler = build_scheduler(source, schema=self.schema, items=items, **(defaults | options))
        return scheduler, source

    def settle(self, cron: Scheduler, most: int = 1000) -> int:
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
