"""The time that passes while ``run_jobs()`` runs jobs: that of the machines, or that of the clock of a test.

``ClockTime`` moves the clock from job to job, and ``Ticks`` fires recurring tasks on the way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

from django_graphile_worker import conf, recurring, registry, simulation
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.inspection.statement_limits import change_settings
from django_graphile_worker.sql.schedules import changes, from_code
from django_graphile_worker.sql.schedules.from_code import database_now
from django_graphile_worker.testing.connections import CallerDatabase
from django_graphile_worker.testing.simulated_clock import Clock
from django_graphile_worker.worker.reporting.reports import WorkerReports
from django_graphile_worker.worker.scheduling.scheduler import Scheduler

MOMENT = timedelta(microseconds=1)
# How often in a row time may pass by less than a second, until a job is found that runs.
MAX_MOMENTS = 1_000
# Seconds after which the clock of a database is read again.
MEASURED_FOR = 60.0
# By database: its time, and when it was read. Not time.monotonic(), which libraries that freeze the time replace, and
# a clock that goes on while the machine sleeps, where there is one.
_measured: dict[Any, tuple[datetime, float]] = {}
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _seconds() -> float:
    return time.clock_gettime(_CLOCK)


class PresentTime:
    """The present: that of the database or of this process, whichever is later.

    In the transaction of a test ``now()`` is the time at which the transaction began. A job that is due since then,
    by the clock of this process, has to run, too.
    """

    def begin(self, database: CallerDatabase, reports: WorkerReports) -> None:
        """Read the clock of the database, unless it was read a moment ago."""
        self._key = (database.alias, database.wrapper.settings_dict["NAME"])
        if self._key not in _measured or _seconds() - _measured[self._key][1] > MEASURED_FOR:
            # The time before the statement: so the time is a little later than that of the database, never earlier.
            began = _seconds()
            with database.cursor() as cursor:
                _measured[self._key] = (database_now(cursor), began)

    def now(self) -> datetime:
        database_time, measured_at = _measured[self._key]
        return max(datetime.now(UTC), database_time + timedelta(seconds=_seconds() - measured_at))

    def move_on(self, seconds_until_next: float | None) -> bool:
        return False

    def end(self) -> None:
        """Do nothing: time passes by itself."""


class StandingTime:
    """The clock of a test, for jobs of immediate mode: they run at the time that it shows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def begin(self, database: CallerDatabase, reports: WorkerReports) -> None:
        """Do nothing: there is nothing to catch up with."""

    def now(self) -> datetime:
        return self._clock.shown

    def move_on(self, seconds_until_next: float | None) -> bool:
        return False

    def end(self) -> None:
        """Do nothing: the clock has not been moved."""


class ClockTime:
    """The clock of a test, from the time up to which jobs have been run to the time that the clock shows.

    Each job runs at the time at which it is due, as if a worker had run all the time.
    """

    def __init__(self, clock: Clock, place: Place, *, cron: bool) -> None:
        self._clock = clock
        self._place = place
        self._key: Any = (place.using, place.installation)
        self._has_cron = cron
        self._ticks: Ticks | None = None
        self._moments = 0

    def begin(self, database: CallerDatabase, reports: WorkerReports) -> None:
        """Go back to the time up to which jobs have been run, and fire what the crontab and schedules have for it."""
        clock = self._clock
        clock.shown = clock.caught_up.get(self._key, clock.start)
        if not self._has_cron:
            return
        ticks: Ticks = clock.ticks.get(self._key) or Ticks(self._place, lambda: clock.shown)
        ticks.use(database, reports)
        if self._key not in clock.ticks:
            clock.ticks[self._key] = ticks
            ticks.begin_at(clock.start, clock.target)
        ticks.fire()
        self._ticks = ticks

    def now(self) -> datetime:
        return self._clock.shown

    def move_on(self, seconds_until_next: float | None) -> bool:
        """Move on to the next time at which something is due; return False if that is later than the clock shows."""
        shown, target = self._clock.shown, self._clock.target
        due = None if seconds_until_next is None else shown + max(timedelta(seconds=seconds_until_next), MOMENT)
        tick = self._ticks.next_tick(shown, target) if self._ticks is not None else None
        times = [moment for moment in (due, tick) if moment is not None and moment <= target]
        if not times:
            self._clock.shown = target
            return False
        self._refuse_to_creep(min(times) - shown)
        self._clock.shown = min(times)
        if tick == self._clock.shown and self._ticks is not None:
            self._ticks.fire()
        return True

    def _refuse_to_creep(self, step: timedelta) -> None:
        """Raise if time passes in moments only, because a job is due that cannot be claimed."""
        self._moments = self._moments + 1 if step < timedelta(seconds=1) else 0
        if self._moments > MAX_MOMENTS:
            raise GraphileWorkerError(
                f"run_jobs(): another transaction has locked a job that is due at {self._clock.shown.isoformat()}. "
                "Let that transaction end first."
            )

    def end(self) -> None:
        """Show the time of the test again, and remember how far jobs have been run."""
        self._clock.caught_up[self._key] = self._clock.shown
        self._clock.shown = self._clock.target
        if self._ticks is not None:
            self._ticks.restore_settings()


class TickWorker:
    """What the scheduler asks of its worker, with the clock of a test.

    It lives as long as the clock, and is also the source of cursors: each call of ``run_jobs()`` has a worker of its
    own, whose connection and signals it uses in turn.
    """

    def __init__(self, place: Place, now: Callable[[], datetime]) -> None:
        is_default = place.installation == conf.DEFAULT
        self.place, self.settings = place, place.settings
        self.registry = registry.tasks
        self.cron_items = recurring.collect(place.settings, with_tasks=is_default)
        self.every = registry.tasks.every() if is_default else {}
        self.reports = self
        self.now = now

    def use(self, database: CallerDatabase, reports: WorkerReports) -> None:
        self._database = database
        self._reports = reports

    def database(self, part: str) -> TickWorker:
        return self

    def cursor(self) -> AbstractContextManager[Any]:
        return self._database.cursor()

    def close(self) -> None:
        """Leave the connection open: it belongs to the test."""

    def send(self, signal: Any, **arguments: Any) -> None:
        self._reports.send(signal, **arguments)

    def database_trouble(self, action: str, error: BaseException, retry_in: float) -> None:
        """Let the test fail with the error of a schedule, which a worker would only report."""
        raise error


class Ticks:
    """The schedules and the crontab of one place."""

    def __init__(self, place: Place, now: Callable[[], datetime]) -> None:
        self._worker = TickWorker(place, now)
        # What firing has changed until the end of the transaction of the test. In autocommit mode it ends with each
        # statement.
        self._changed_settings: dict[str, str] | None = None
        worker: Any = self._worker
        self._scheduler = Scheduler(worker)
        # No minute must be a round of its own because a function of the project is asked.
        self._scheduler.items.look_ahead = timedelta(days=1)

    def use(self, database: CallerDatabase, reports: WorkerReports) -> None:
        """Use the connection and the signals of another worker from now on."""
        self._database = database
        self._worker.use(database, reports)

    def begin_at(self, start: datetime, until: datetime) -> None:
        """Let what was made or fired at any other time begin at the start of the clock."""
        with self._database.cursor() as cursor:
            changes.begin_at(cursor, start, until, schema=self._database.schema)
            if self._scheduler.items:
                from_code.forget_later(cursor, schema=self._database.schema, now=start)

    def fire(self) -> None:
        """Fire what is due at the time of the clock, and what was missed before."""
        if self._changed_settings is None and self._database.is_in_transaction:
            with self._database.cursor() as cursor:
                self._changed_settings = change_settings(cursor, {"lock_timeout": "0"})
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
        settings, self._changed_settings = self._changed_settings, None
        if settings is not None:
            with self._database.cursor() as cursor:
                change_settings(cursor, settings)


Timeline = PresentTime | StandingTime | ClockTime
