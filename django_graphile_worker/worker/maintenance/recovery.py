"""Frees what dead workers left locked. Every worker looks; one of them wins."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from psycopg.errors import ProgramLimitExceeded

from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.maintenance.dead_workers import BEATS_WATCHED, Judge
from django_graphile_worker.worker.maintenance.lease_clock import lease_clock
from django_graphile_worker.worker.service import Service, Trouble, jittered

if TYPE_CHECKING:
    from django_graphile_worker.sql import recovery

# Four looks per timeout: a dead worker's jobs are free within timeout and a quarter.
LOOKS_PER_TIMEOUT = 4
# In a larger fleet each worker looks as much less often, so that the database has no more to do.
BUSY_FLEET = 16
# Locks of foreign workers age for hours; looking now and then is enough.
LOOKS_PER_TIDYING = 20
# Not the first: a run that only drains has one, and its first job waits for it.
LOOK_AT_INDEXES = 1
# How often the locks of long jobs are renewed, in seconds.
RENEWAL_INTERVAL = 600.0
# A worker that may be dead in a moment is looked at again not sooner than this, in seconds.
SHORTEST_PAUSE = 0.05


class Recovery(Service):
    """Level-triggered: it looks at the state, never trusts to have seen the event."""

    name = "recovery"

    def __init__(
        self,
        *,
        database: Database,
        timeout: float,
        heartbeat_interval: float,
        in_contact_since: Callable[[], float],
        on_recovered: Callable[[recovery.Recovered], None],
        on_stale: Callable[[recovery.Unlocked], None],
        on_indexes_missed: Callable[[Sequence[str], Sequence[str]], None] | None = None,
        worker_id: Callable[[], str] = str,
        spared_job_ids: Callable[[], Sequence[int]] = tuple,
        before_sweep: Callable[[Database], None] = lambda database: None,
        statistics_retention: float,
        now: Callable[[], datetime | None] = lambda: None,
        notify: bool = True,
        clock: Callable[[], float] = lease_clock,
        on_trouble: Trouble | None = None,
    ) -> None:
        super().__init__(on_trouble=on_trouble)
        self._database = database
        self._timeout = timeout
        self._heartbeat_interval = heartbeat_interval
        # After an outage of its own this worker does not know who else was cut off.
        self._in_contact_since = in_contact_since
        self._on_recovered = on_recovered
        self._on_stale = on_stale
        self._on_indexes_missed = on_indexes_missed
        self._worker_id = worker_id
        # Jobs whose locks are not to be renewed.
        self._spared_job_ids = spared_job_ids
        # What else is to be looked at now and then.
        self._before_sweep = before_sweep
        self._statistics_retention = statistics_retention
        self._now = now
        self._notify = notify
        self._clock = clock
        self._judge = Judge(clock)
        self._renewed_at = clock()
        self._looks = 0
        # Where the next look for locks of unregistered workers goes on.
        self._go_on_at: float | None = None
        # Dead workers whose jobs are not all free yet.
        self._unfinished: list[str] = []
        # A run that only drains cannot watch anybody: it takes for dead who has been silent for longer.
        self.judges_at_once = False

    def step(self) -> float:
        """One look at everybody; free what the dead held."""
        try:
            self._before_sweep(self._database)
            return self._look()
        except BaseException:
            self._judge.forget()
            raise

    def close(self) -> None:
        self._database.close()

    def _look(self) -> float:
        self._renew_long_claims()
        fleet = self._look_at_fleet()
        recovered = self._recover(self._dead(fleet), [*self._unfinished, *fleet.orphans])
        self._unfinished = list(recovered.dead_worker_ids) if recovered.is_partial else []
        if self._looks % LOOKS_PER_TIDYING == 0:
            self._tidy_up()
        if self._looks == LOOK_AT_INDEXES:
            self._look_at_indexes()
        self._looks += 1
        return 0.0 if self._unfinished else self._pause(fleet.size)

    def _pause(self, fleet_size: int) -> float:
        seconds = self._timeout / LOOKS_PER_TIMEOUT
        if fleet_size > BUSY_FLEET:
            seconds *= fleet_size / BUSY_FLEET * random.uniform(0.5, 1.5)
        return min(jittered(seconds), RENEWAL_INTERVAL, max(self._judge.until_next, SHORTEST_PAUSE))

    def _dead(self, fleet: recovery.Fleet) -> list[recovery.LateWorker]:
        if self.judges_at_once:
            return [
                worker
                for worker in fleet.late
                if worker.silent_seconds >= worker.timeout_seconds + BEATS_WATCHED * worker.heartbeat_seconds
            ]
        return self._judge.look(fleet.late, in_contact_since=self._in_contact_since())

    def _look_at_fleet(self) -> recovery.Fleet:
        # Here, as below: the first look may wait for its statements, the first job need not.
        from django_graphile_worker.sql import recovery

        with self._database.cursor() as cursor:
            fleet = recovery.look_at_fleet(
                cursor,
                schema=self._database.schema,
                timeout=self._timeout,
                heartbeat=self._heartbeat_interval,
                now=self._now(),
                go_on_at=self._go_on_at,
            )
        self._go_on_at = fleet.reached
        return fleet

    def _recover(self, dead: Sequence[recovery.LateWorker], unregistered: Sequence[str]) -> recovery.Recovered:
        from django_graphile_worker.sql import recovery

        if not dead and not unregistered:
            return recovery.Recovered()
        schema = self._database.schema
        with self._database.cursor() as cursor:
            buried = recovery.remove_dead_workers(cursor, dead, schema=schema)
            worker_ids = list(dict.fromkeys([*buried, *unregistered]))
            recovered = recovery.recover_claims(cursor, worker_ids, schema=schema, now=self._now())
        if recovered.dead_worker_ids:
            self._on_recovered(recovered)
        if self._notify and (recovered.job_ids or recovered.queue_ids):
            self._wake_workers(len(recovered.job_ids))
        return recovered

    def _wake_workers(self, count: int) -> None:
        from django_graphile_worker.sql import recovery

        # Where the server's queue of notifications is full, they find the jobs when they poll.
        with contextlib.suppress(ProgramLimitExceeded), self._database.cursor() as cursor:
            recovery.wake_workers(cursor, max(count, 1), schema=self._database.schema)

    def _renew_long_claims(self) -> None:
        if self._clock() - self._renewed_at < RENEWAL_INTERVAL:
            return
        from django_graphile_worker.sql import workers

        with self._database.cursor() as cursor:
            workers.renew_claims(cursor, self._worker_id(), schema=self._database.schema, spared=self._spared_job_ids())
        self._renewed_at = self._clock()

    def _tidy_up(self) -> None:
        from django_graphile_worker.sql import recovery, statistics

        with self._database.cursor() as cursor:
            unlocked = recovery.release_stale_locks(cursor, schema=self._database.schema, now=self._now())
            recovery.forget_ended(cursor, schema=self._database.schema)
            statistics.prune(cursor, schema=self._database.schema, older_than=self._statistics_retention)
        if unlocked.jobs or unlocked.queues:
            self._on_stale(unlocked)

    def _look_at_indexes(self) -> None:
        """Without its indexes a queue finds every job slowly, and nothing else would tell why."""
        if self._on_indexes_missed is None:
            return
        # Here, as it is done once, and nothing that the first job has to wait for.
        from django_graphile_worker.sql.install.indexes import lacking_indexes

        with self._database.cursor() as cursor:
            lack = lacking_indexes(cursor, schema=self._database.schema)
        if any(lack):
            self._on_indexes_missed(*lack)
