"""Workers that fire schedules on a clock that the test sets: real statements, simulated times and failures."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import sql

from django_graphile_worker.jobs import JobDefaults
from django_graphile_worker.registry import Registry, Task
from django_graphile_worker.worker.scheduling.scheduler import Scheduler
from tests.conftest import RawConnection
from tests.support.scheduling import FlakySource, build_scheduler

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def registry_of(*identifiers: str, **options: Any) -> Registry:
    """Return a registry with tasks of these names, which have the same defaults."""
    registry = Registry()
    for identifier in identifiers:
        registry.register(Task(lambda payload: None, identifier, defaults=JobDefaults(**options)))
    return registry


class ScheduleWorld:
    """A database with schedules, workers that fire them, and a clock that the test sets."""

    def __init__(self, connect: Callable[..., RawConnection], schema: str, now: datetime) -> None:
        self.connect = connect
        self.connection = connect()
        self.schema = schema
        self.now = now
        self.signals: list[tuple[Any, dict[str, Any]]] = []
        self.troubles: list[str] = []

    def execute(self, text: str, *values: Any) -> list[Any]:
        """Send a statement at the time of the clock, and return its rows; %s is the name of the schema."""
        with self.connection.cursor() as cursor:
            cursor.execute("select set_config('graphile_worker.now', %s, false)", [self.now.isoformat()])
            cursor.execute(sql.SQL(text.replace(":S.", "{0}.")).format(sql.Identifier(self.schema)), values)
            return cursor.fetchall() if cursor.description else []

    def add(self, name: str, **columns: Any) -> int:
        """Add a schedule of the task ``report``; return its id."""
        values = {"name": name, "task": "report", **columns}
        values["payload"] = json.dumps(values.get("payload", {}))
        names = ", ".join(f'"{column}"' for column in values)
        places = ", ".join(["%s"] * len(values))
        text = f"insert into :S._private_schedules ({names}) values ({places}) returning id"
        return int(self.execute(text, *values.values())[0][0])

    def row(self, name: str) -> dict[str, Any]:
        """Return the row of a schedule."""
        (row,) = self.execute("select row_to_json(each) from :S._private_schedules as each where name = %s", name)
        return dict(row[0])

    def worker(
        self,
        *identifiers: str,
        registry: Registry | None = None,
        every: dict[str, timedelta] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> tuple[Scheduler, FlakySource]:
        """Return the scheduler of a new worker that knows these tasks, and its source of cursors."""
        source = FlakySource(self.connect())
        scheduler = build_scheduler(
            source,
            schema=self.schema,
            registry=registry or registry_of(*(identifiers or ("report",))),
            every=every,
            now=lambda: self.now,
            send=lambda signal, **about: self.signals.append((signal, about)),
            on_trouble=lambda action, error, _: self.troubles.append(f"{action}: {error}"),
            clock=clock,
        )
        return scheduler, source

    def settle(self, scheduler: Scheduler) -> float:
        """Run rounds until nothing is due; return the seconds until the next."""
        return next(delay for delay in (scheduler.fire_due() for _ in itertools.count()) if delay > 0)

    def jobs(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return the jobs, or those of one schedule, in the order in which they were added."""
        rows = self.execute(
            "select row_to_json(job) from (select jobs.id, tasks.identifier as task, jobs.payload, jobs.run_at,"
            " jobs.priority, jobs.max_attempts, jobs.key, jobs.flags, queues.queue_name from :S._private_jobs as jobs"
            " join :S._private_tasks as tasks on tasks.id = jobs.task_id"
            " left join :S._private_job_queues as queues on queues.id = jobs.job_queue_id order by jobs.id) as job"
        )
        jobs = [row[0] for row in rows]
        return [job for job in jobs if name is None or self._is_of(job, name)]

    def ticks(self, name: str) -> list[str]:
        """Return the times of the jobs of a schedule, in the order in which they were added."""
        return [job["payload"]["_cron"]["ts"][11:19] for job in self.jobs(name)]

    def runs(self, name: str) -> list[tuple[str, str, int]]:
        """Return the runs of a schedule: what became of each tick, its time, and how many ticks the row stands for."""
        rows = self.execute(
            "select run.kind, to_char(run.tick at time zone 'UTC', 'HH24:MI:SS'), run.number"
            " from :S._private_schedule_runs as run join :S._private_schedules as schedule"
            " on schedule.id = run.schedule_id where schedule.name = %s order by run.id",
            name,
        )
        return [tuple(row) for row in rows]

    def events(self) -> list[tuple[str, str, int]]:
        """Return kind, subject and number of ticks of each event."""
        rows = self.execute("select kind, subject, details from :S._private_events order by id")
        return [(kind, subject, details["ticks"]) for kind, subject, details in rows]

    def _is_of(self, job: dict[str, Any], name: str) -> bool:
        return any(flag.startswith(f"schedule:{self.row(name)['id']}:") for flag in job["flags"] or ())
