"""The schedules of the database on the clock of a test: jumps from tick to tick."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from django_graphile_worker import conf, registry, simulation
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.schedules import changes
from django_graphile_worker.testing.connections import CallerDatabase
from django_graphile_worker.testing.simulated_time.kept_settings import KeptSettings
from django_graphile_worker.worker.reporting.events import WorkerEvents
from django_graphile_worker.worker.scheduling.known_tasks import KnownTasks
from django_graphile_worker.worker.scheduling.rounds import Rounds
from django_graphile_worker.worker.task_selection import any_task_finder


class ScheduleTicks:
    """The schedules of one place, fired as a worker fires them.

    It lives as long as the clock, and is the source of cursors: each call of ``run_jobs()`` has a worker of its own,
    which it uses in turn.
    """

    def __init__(self, *, place: Place, now: Callable[[], datetime]) -> None:
        self._settings = KeptSettings()
        self._rounds = Rounds(
            database=self,
            schema=place.settings.schema,
            tasks=KnownTasks(registry.tasks, any_task_finder()),
            every=registry.tasks.every() if place.installation == conf.DEFAULT else {},
            now=now,
            notify=place.settings.notify,
            send=lambda signal, **arguments: self._events.send(signal, **arguments),
            on_trouble=_raise,
        )

    def use(self, database: CallerDatabase, events: WorkerEvents) -> None:
        """Use the connection and the signals of another worker from now on."""
        self._database = database
        self._events = events

    def begin_at(self, start: datetime, until: datetime) -> None:
        """Let the schedules that were made or fired at any other time begin at the start of the clock."""
        with self._database.cursor() as cursor:
            changes.begin_at(cursor, start, until, schema=self._database.schema)

    def cursor(self) -> AbstractContextManager[Any]:
        return self._database.cursor()

    def close(self) -> None:
        """Leave the connection open: it belongs to the test."""

    def fire(self) -> None:
        """Fire what is due at the time of the clock, and what was missed before."""
        self._settings.keep(self._database)
        simulation.has_new_schedules = False
        while self._rounds.run() == 0:
            pass

    def next_tick(self, until: datetime) -> datetime | None:
        """Return the time at which a schedule is due next, not after a time."""
        if simulation.has_new_schedules:
            # A job has written schedules.
            self.fire()
        tick = self._rounds.next_at
        return tick if tick is not None and tick <= until else None

    def restore_settings(self) -> None:
        """Restore what firing has changed in the transaction of the test."""
        self._settings.restore(self._database)


def _raise(action: str, error: BaseException, retry_in: float) -> None:
    """Let the test fail with the error of a schedule, which a worker would only report."""
    raise error
