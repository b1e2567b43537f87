"""Recovers the jobs and queues of dead workers. Every worker does so; the statements let one worker win each job."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.sql import events, progress, recovery, workers
from django_graphile_worker.sql.statistics import backlog_samples, statistics
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.maintenance.dead_workers import BEATS_WATCHED, DeadWorkerDetector
from django_graphile_worker.worker.maintenance.lease_clock import lease_clock
from django_graphile_worker.worker.other_workers import wake_other_workers
from django_graphile_worker.worker.service import Service, Trouble, jittered

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Protocol

    from django_graphile_worker.sql.cancellations import CancelledJob
    from django_graphile_worker.sql.result_keeping import ResultKeeping

    class RecoveryEvents(Protocol):
        """What the recovery needs from its own worker, and reports to it."""

        def worker_id(self) -> str:
            """Return the id of the worker whose long claims are renewed."""

        def in_contact_since(self) -> float:
            """Return the time, by the lease clock, since which this worker has been in contact with the database.

            After an outage of its own, a worker cannot decide which other workers were cut off as well.
            """

        def unrenewable_job_ids(self) -> Sequence[int]:
            """Return the running jobs whose locks must not be renewed."""

        def now(self) -> datetime | None:
            """Return the time that decides when jobs are due; None for the database's clock."""

        def result_keeping(self) -> ResultKeeping:
            """Return which tasks keep their results, and whether there is a history."""

        def before_recovery(self, database: Database) -> None:
            """Run the other regular checks, on this connection."""

        def cancelled_recovered(self, jobs: Sequence[CancelledJob]) -> None:
            """Report jobs that were cancelled while dead workers held them, and that have ended now."""

        def jobs_recovered(self, recovered: recovery.Recovered) -> None:
            """Report jobs and queues of dead workers, which are free again."""

        def stale_locks_released(self, unlocked: recovery.Unlocked) -> None:
            """Report released locks, which unregistered workers had held for hours."""

        def indexes_missed(self, missing: Sequence[str], incomplete: Sequence[str]) -> None:
            """Report that the schema lacks indexes without which the worker is slow."""


# How often per timeout to look: a dead worker's jobs are free within the timeout and a quarter of it.
LOOKS_PER_TIMEOUT = 4
# With more workers than this, each looks less often, in proportion: the database has no more to do than with this many.
# But never less often than once per timeout: most of a large fleet may have died, and few are left to look.
BUSY_FLEET = 16
# Every how many looks to clean up: the locks of unregistered workers become stale only after hours.
LOOKS_PER_CLEANUP = 20
# The number of the look that checks the indexes. Not 0, the first: a draining worker has a single look, and its first
# job waits for it.
LOOK_AT_INDEXES = 1
# Seconds between two renewals of the locks of long jobs.
RENEWAL_INTERVAL = 600.0
# The shortest pause, in seconds, before another look at a worker that may be dead in a moment.
SHORTEST_PAUSE = 0.05


class Recovery(Service):
    """The service that looks for dead workers. It reads the current state of the database, and relies on no events."""

    name = "recovery"

    def __init__(
        self,
        *,
        database: Database,
        events: RecoveryEvents,
        timeout: float,
        heartbeat_interval: float,
        statistics_retention: float,
        events_retention: float,
        notify: bool = True,
        clock: Callable[[], float] = lease_clock,
        on_trouble: Trouble | None = None,
    ) -> None:
        super().__init__(on_trouble=on_trouble)
        self._database = database
        self._events = events
        self._timeout = timeout
        self._heartbeat_interval = heartbeat_interval
        self._statistics_retention = statistics_retention
        self._events_retention = events_retention
        self._notify = notify
        self._clock = clock
        self._detector = DeadWorkerDetector(clock)
        self._renewed_at = clock()
        self._looks = 0
        # Where the next look for locks of unregistered workers continues.
        self._continue_at: float | None = None
        # Where the next look for progress that dead workers have left behind continues.
        self._progress_after = 0
        # Dead workers whose jobs are not all free yet.
        self._unfinished: list[str] = []
        # Set for a draining worker. It has no time to watch the other workers, so it requires a longer silence instead.
        self.skips_watching = False

    def step(self) -> float:
        """Look at all workers once, and recover the jobs of the dead workers."""
        try:
            self._events.before_recovery(self._database)
            return self._look()
        except BaseException:
            self._detector.reset()
            raise

    def close(self) -> None:
        self._database.close()

    def _look(self) -> float:
        self._renew_long_claims()
        fleet = self._look_at_fleet()
        recovered = self._recover(self._dead(fleet), [*self._unfinished, *fleet.orphans])
        self._unfinished = list(recovered.dead_worker_ids) if recovered.is_partial else []
        if self._looks % LOOKS_PER_CLEANUP == 0:
            self._clean_up()
        if self._looks == LOOK_AT_INDEXES:
            self._check_indexes()
        self._looks += 1
        return 0.0 if self._unfinished else self._pause(fleet.size)

    def _pause(self, fleet_size: int) -> float:
        seconds = self._timeout / LOOKS_PER_TIMEOUT
        if fleet_size > BUSY_FLEET:
            seconds = min(seconds * fleet_size / BUSY_FLEET, self._timeout / 1.5) * random.uniform(0.5, 1.5)
        return min(jittered(seconds), self._timeout, RENEWAL_INTERVAL, max(self._detector.until_next, SHORTEST_PAUSE))

    def _dead(self, fleet: recovery.Fleet) -> list[recovery.LateWorker]:
        if self.skips_watching:
            return [worker for worker in fleet.late if worker.is_overdue_by(BEATS_WATCHED)]
        return self._detector.find_dead(fleet.late, in_contact_since=self._events.in_contact_since())

    def _look_at_fleet(self) -> recovery.Fleet:
        with self._database.cursor() as cursor:
            fleet = recovery.look_at_fleet(
                cursor,
                schema=self._database.schema,
                timeout=self._timeout,
                heartbeat=self._heartbeat_interval,
                now=self._events.now(),
                go_on_at=self._continue_at,
            )
        self._continue_at = fleet.reached
        return fleet

    def _recover(self, dead: Sequence[recovery.LateWorker], unregistered: Sequence[str]) -> recovery.Recovered:
        if not dead and not unregistered:
            return recovery.Recovered()
        schema = self._database.schema
        with self._database.cursor() as cursor:
            by = self._events.worker_id()
            removed = recovery.remove_dead_workers(cursor, dead, schema=schema, by=by)
            worker_ids = list(dict.fromkeys([*removed, *unregistered]))
            recovered = recovery.recover_claims(
                cursor, worker_ids, schema=schema, now=self._events.now(), keeping=self._events.result_keeping(), by=by
            )
        if recovered.cancelled:
            self._events.cancelled_recovered(recovered.cancelled)
        if recovered.dead_worker_ids:
            self._events.jobs_recovered(recovered)
        if self._notify and (recovered.job_ids or recovered.queue_ids):
            wake_other_workers(self._database, max(len(recovered.job_ids), 1))
        return recovered

    def _renew_long_claims(self) -> None:
        if self._clock() - self._renewed_at < RENEWAL_INTERVAL:
            return
        worker_id, schema = self._events.worker_id(), self._database.schema
        with self._database.cursor() as cursor:
            workers.renew_claims(cursor, worker_id, schema=schema, spared=self._events.unrenewable_job_ids())
        self._renewed_at = self._clock()

    def _clean_up(self) -> None:
        schema = self._database.schema
        with self._database.cursor() as cursor:
            unlocked = recovery.release_stale_locks(
                cursor,
                schema=schema,
                now=self._events.now(),
                keeping=self._events.result_keeping(),
                by=self._events.worker_id(),
            )
            recovery.forget_ended(cursor, schema=schema)
            for kept in (statistics, backlog_samples):
                kept.prune(cursor, schema=schema, older_than=self._statistics_retention)
            events.prune(cursor, schema=schema, older_than=self._events_retention)
            self._progress_after = progress.forget_ended(cursor, schema=schema, after=self._progress_after)
        if unlocked.cancelled:
            self._events.cancelled_recovered(unlocked.cancelled)
        if unlocked.jobs or unlocked.queues:
            self._events.stale_locks_released(unlocked)

    def _check_indexes(self) -> None:
        """Report missing indexes: without them the worker finds every job slowly, and nothing else shows the cause."""
        # Late import: done once, and not before the first job.
        from django_graphile_worker.sql.install.indexes import lacking_indexes

        with self._database.cursor() as cursor:
            missing, incomplete = lacking_indexes(cursor, schema=self._database.schema)
        if missing or incomplete:
            self._events.indexes_missed(missing, incomplete)
