"""The crontab of a project on the clock of a test: jumps from tick to tick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from django_graphile_worker import conf, project_crontab
from django_graphile_worker.crontab import CronItem, occurrences
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.schedules import from_code
from django_graphile_worker.testing.connections import CallerDatabase
from django_graphile_worker.testing.simulated_time.kept_settings import KeptSettings
from django_graphile_worker.worker.maintenance.cron import Cron
from django_graphile_worker.worker.reporting.events import WorkerEvents


def items_of(place: Place) -> tuple[CronItem, ...]:
    """Return the crontab items that a worker at this place fires."""
    return project_crontab.collect(place.settings, with_tasks=place.installation == conf.DEFAULT)


class _ClockCron(Cron):
    """The cron service, on the clock of a test: no statement has to read it."""

    def _read_clock(self) -> datetime:
        now = self._statement_now()
        assert now is not None
        return now


class CronTicks:
    """The crontab items of one place, fired by the cron service of a worker.

    It lives as long as the clock, and is the source of cursors of the service: each call of ``run_jobs()`` has a worker
    of its own, which it uses in turn.
    """

    def __init__(self, items: Sequence[CronItem], *, place: Place, now: Callable[[], datetime]) -> None:
        self._items = items
        self._next: dict[str, datetime] = {}
        self._settings = KeptSettings()
        self._cron = _ClockCron(
            items=items,
            database=self,
            schema=place.settings.schema,
            database_now=now,
            notify=place.settings.notify,
            send=lambda signal, **arguments: self._events.send(signal, **arguments),
        )

    def use(self, database: CallerDatabase, events: WorkerEvents) -> None:
        """Use the connection and the signals of another worker from now on."""
        self._database = database
        self._events = events

    def forget_later(self, now: datetime) -> None:
        """Forget what was fired at a later time, by a clock or a worker of an earlier test."""
        with self._database.cursor() as cursor:
            from_code.forget_later(cursor, schema=self._database.schema, now=now)

    def cursor(self) -> AbstractContextManager[Any]:
        return self._database.cursor()

    def close(self) -> None:
        """Leave the connection open: it belongs to the test."""

    def next_tick(self, after: datetime, until: datetime) -> datetime | None:
        """Return the first minute after a time, and not after another, at which an item is due."""
        ticks = (self._next_of(item, after, until) for item in self._items)
        return min((tick for tick in ticks if tick is not None), default=None)

    def fire(self) -> None:
        """Fire what is due at the time of the clock, and what was missed before."""
        self._settings.keep(self._database)
        while self._cron.step() == 0:
            pass

    def _next_of(self, item: CronItem, after: datetime, until: datetime) -> datetime | None:
        known = self._next.get(item.name)
        if known is None or known <= after:
            known = next(iter(occurrences(item, after, until)), None)
            if known is None:
                return None
            self._next[item.name] = known
        return known if known <= until else None

    def restore_settings(self) -> None:
        """Restore what firing has changed in the transaction of the test."""
        self._settings.restore(self._database)
