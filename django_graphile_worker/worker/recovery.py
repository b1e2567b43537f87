"""Frees what dead workers left locked. Every worker sweeps; one of them wins."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from django_graphile_worker.worker.database import Database
from django_graphile_worker.worker.service import Service, Trouble, jittered

if TYPE_CHECKING:
    from django_graphile_worker.sql import rescue

# Four looks per timeout: a dead worker's jobs are free within timeout and a quarter.
SWEEPS_PER_TIMEOUT = 4
# Locks of strangers age for hours; looking now and then is enough.
STALE_LOCK_SWEEPS = 20
# Not the first: a run that only drains has one, and its first job waits for it.
SWEEP_THAT_LOOKS_AT_INDEXES = 1


class Recovery(Service):
    """Level-triggered: it looks at the state, never trusts to have seen the event."""

    name = "recovery"

    def __init__(
        self,
        *,
        database: Database,
        timeout: float,
        may_judge: Callable[[], bool] = lambda: True,
        on_recovered: Callable[[rescue.Recovered], None],
        on_stale: Callable[[rescue.Unlocked], None],
        on_indexes_missed: Callable[[Sequence[str], Sequence[str]], None] | None = None,
        before_sweep: Callable[[Database], None] = lambda database: None,
        statistics_retention: float,
        now: Callable[[], datetime | None] = lambda: None,
        notify: bool = True,
        clock: Callable[[], float] = time.monotonic,
        on_trouble: Trouble | None = None,
    ) -> None:
        super().__init__(on_trouble=on_trouble)
        self._database = database
        self._timeout = timeout
        # After an outage nobody has beaten for long: those that live need a moment to say so.
        self._may_judge = may_judge
        self._on_recovered = on_recovered
        self._on_stale = on_stale
        self._on_indexes_missed = on_indexes_missed
        # What else is to be looked at now and then.
        self._before_sweep = before_sweep
        self._statistics_retention = statistics_retention
        self._now = now
        self._notify = notify
        self._database_clock = WatchedClock(clock, tolerance=timeout / SWEEPS_PER_TIMEOUT)
        self._sweeps = 0

    def step(self) -> float:
        """One sweep."""
        self._before_sweep(self._database)
        if not self._may_judge():
            return self._timeout / SWEEPS_PER_TIMEOUT / 2
        suspicion = self._suspect()
        self._database_clock.look(suspicion.moment)
        # By a clock that was just set nobody has beaten for long; in half a timeout all have.
        if self._database_clock.steady_for < self._timeout / 2:
            return self._timeout / SWEEPS_PER_TIMEOUT / 2
        is_partial = bool(suspicion.worker_ids) and self._recover(suspicion).is_partial
        if self._sweeps % STALE_LOCK_SWEEPS == 0:
            self._tidy_up()
        if self._sweeps == SWEEP_THAT_LOOKS_AT_INDEXES:
            self._look_at_indexes()
        self._sweeps += 1
        return 0.0 if is_partial else jittered(self._timeout / SWEEPS_PER_TIMEOUT)

    def close(self) -> None:
        self._database.close()

    def _suspect(self) -> rescue.Suspicion:
        # Here, as below: the first sweep may wait for its statements, the first job need not.
        from django_graphile_worker.sql import rescue

        # One who has not watched the clock so long cannot know that all have beaten since it was set back.
        is_future_dead = self._timeout <= self._database_clock.watched_for
        with self._database.cursor() as cursor:
            return rescue.suspect(
                cursor,
                schema=self._database.schema,
                timeout=self._timeout,
                now=self._now(),
                is_future_dead=is_future_dead,
            )

    def _recover(self, suspicion: rescue.Suspicion) -> rescue.Recovered:
        from django_graphile_worker.sql import rescue

        schema = self._database.schema
        with self._database.cursor() as cursor:
            recovered = rescue.free(cursor, suspicion, schema=schema, now=self._now())
            if self._notify and (recovered.job_ids or recovered.queue_ids):
                rescue.wake_workers(cursor, max(len(recovered.job_ids), 1), schema=schema)
        if recovered.dead_worker_ids:
            self._on_recovered(recovered)
        return recovered

    def _tidy_up(self) -> None:
        from django_graphile_worker.sql import rescue, statistics

        with self._database.cursor() as cursor:
            unlocked = rescue.release_stale_locks(cursor, schema=self._database.schema, now=self._now())
            rescue.forget_recoveries(cursor, schema=self._database.schema)
            statistics.prune(cursor, schema=self._database.schema, older_than=self._statistics_retention)
        if unlocked.jobs or unlocked.queues:
            self._on_stale(unlocked)

    def _look_at_indexes(self) -> None:
        """Without them every job is found, slowly: nothing else would tell why."""
        if self._on_indexes_missed is None:
            return
        # Here, as it is done once, and nothing that the first job has to wait for.
        from django_graphile_worker.sql.indexes import lacking_indexes

        with self._database.cursor() as cursor:
            lack = lacking_indexes(cursor, schema=self._database.schema)
        if any(lack):
            self._on_indexes_missed(*lack)


class WatchedClock:
    """The database's clock, seen from here: does it go on as ours does, or was it set?"""

    def __init__(self, clock: Callable[[], float], *, tolerance: float) -> None:
        self._clock = clock
        self._tolerance = tolerance
        self._last: tuple[datetime, float] | None = None
        self._first_seen_at = math.inf
        self._set_at = -math.inf

    def look(self, moment: datetime) -> None:
        now = self._clock()
        if self._last is None:
            self._first_seen_at = now
        elif abs((moment - self._last[0]).total_seconds() - (now - self._last[1])) > self._tolerance:
            self._set_at = now
        self._last = (moment, now)

    @property
    def steady_for(self) -> float:
        """Seconds since it was last seen to have been set."""
        return self._clock() - self._set_at

    @property
    def watched_for(self) -> float:
        return self._clock() - self._first_seen_at
