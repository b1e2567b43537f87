"""The time that passes while ``run_jobs()`` runs jobs: that of the machines, or that of the clock of a test."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.schedules.from_code import database_now
from django_graphile_worker.testing.connections import CallerDatabase
from django_graphile_worker.testing.simulated_clock import Clock
from django_graphile_worker.testing.simulated_time.ticks import Ticks
from django_graphile_worker.worker.reporting.events import WorkerEvents

MOMENT = timedelta(microseconds=1)
# How often in a row time may pass by less than a second, until a job is found that runs.
MOST_MOMENTS = 1_000


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

    def begin(self, database: CallerDatabase, events: WorkerEvents) -> None:
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

    def begin(self, database: CallerDatabase, events: WorkerEvents) -> None:
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

    def begin(self, database: CallerDatabase, events: WorkerEvents) -> None:
        """Go back to the time up to which jobs have been run, and fire what the crontab and schedules have for it."""
        clock = self._clock
        clock.shown = clock.caught_up.get(self._key, clock.start)
        if not self._has_cron:
            return
        ticks: Ticks = clock.ticks.get(self._key) or Ticks(self._place, lambda: clock.shown)
        ticks.use(database, events)
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
        if self._moments > MOST_MOMENTS:
            raise GraphileWorkerError(
                f"run_jobs(): expected the jobs that are due at {self._clock.shown.isoformat()} to be free, got a job "
                "that another transaction has locked. Let the other transaction end first."
            )

    def end(self) -> None:
        """Show the time of the test again, and remember how far jobs have been run."""
        self._clock.caught_up[self._key] = self._clock.shown
        self._clock.shown = self._clock.target
        if self._ticks is not None:
            self._ticks.restore_settings()


Timeline = PresentTime | StandingTime | ClockTime
