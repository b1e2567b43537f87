"""Recurring tasks on the clock of a test, fired as a worker fires them: jumps from tick to tick."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

from django_graphile_worker import conf, project_crontab, registry, simulation
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.schedules import changes, from_code
from django_graphile_worker.testing.connections import CallerDatabase
from django_graphile_worker.testing.simulated_time.kept_settings import KeptSettings
from django_graphile_worker.worker.reporting.events import WorkerEvents
from django_graphile_worker.worker.scheduling.scheduler import Scheduler


class TickWorker:
    """What the scheduler asks of its worker, with the clock of a test.

    It lives as long as the clock, and is also the source of cursors: each call of ``run_jobs()`` has a worker of its
    own, whose connection and signals it uses in turn.
    """

    def __init__(self, place: Place, now: Callable[[], datetime]) -> None:
        is_default = place.installation == conf.DEFAULT
        self.settings = place.settings
        self.registry = registry.tasks
        self.cron_items = project_crontab.collect(place.settings, with_tasks=is_default)
        self.every = registry.tasks.every() if is_default else {}
        self.events = self
        self.now = now

    def use(self, database: CallerDatabase, events: WorkerEvents) -> None:
        self._database = database
        self._events = events

    def database(self, part: str) -> TickWorker:
        return self

    def cursor(self) -> AbstractContextManager[Any]:
        return self._database.cursor()

    def close(self) -> None:
        """Leave the connection open: it belongs to the test."""

    def send(self, signal: Any, **arguments: Any) -> None:
        self._events.send(signal, **arguments)

    def database_trouble(self, action: str, error: BaseException, retry_in: float) -> None:
        """Let the test fail with the error of a schedule, which a worker would only report."""
        raise error


class Ticks:
    """The schedules and the crontab of one place."""

    def __init__(self, place: Place, now: Callable[[], datetime]) -> None:
        self._worker = TickWorker(place, now)
        self._settings = KeptSettings()
        worker: Any = self._worker
        self._scheduler = Scheduler(worker)
        # No minute must be a round of its own because a function of the project is asked.
        self._scheduler.items.look_ahead = timedelta(days=1)

    def use(self, database: CallerDatabase, events: WorkerEvents) -> None:
        """Use the connection and the signals of another worker from now on."""
        self._database = database
        self._worker.use(database, events)

    def begin_at(self, start: datetime, until: datetime) -> None:
        """Let what was made or fired at any other time begin at the start of the clock."""
        with self._database.cursor() as cursor:
            changes.begin_at(cursor, start, until, schema=self._database.schema)
            if self._scheduler.items:
                from_code.forget_later(cursor, schema=self._database.schema, now=start)

    def fire(self) -> None:
        """Fire what is due at the time of the clock, and what was missed before."""
        self._settings.keep(self._database)
        simulation.has_new_schedules = False
        while self._scheduler.fire_due() == 0:
            pass

    def next_tick(self, after: datetime, until: datetime) -> datetime | None:
        """Return the first time after a time, and not after another, at which something is due."""
        if simulation.has_new_schedules:
            # A job has written schedules.
            self.fire()
        ticks = (self._scheduler.next_at, self._scheduler.items.next_at)
        return min((tick for tick in ticks if tick is not None and after < tick <= until), default=None)

    def restore_settings(self) -> None:
        """Restore what firing has changed in the transaction of the test."""
        self._settings.restore(self._database)
