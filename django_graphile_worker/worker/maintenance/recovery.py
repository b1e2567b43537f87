"""Recovers the jobs and queues of dead workers. Every worker does so; the statements let one worker win each job."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.sql import events, progress, recovery, statistics, workers
from django_graphile_worker.sql.install.indexes import lacking_indexes
from django_graphile_worker.worker.maintenance.heartbeat import lease_clock
from django_graphile_worker.worker.service import Service, jittered

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

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
# For how many of its heartbeat intervals a late worker is watched before it counts as dead.
BEATS_WATCHED = 2


class DeadWorkerDetector:
    """Decides which workers are dead. Keeps the late workers from one look at the register to the next.

    A worker is dead when, by the database's clock, its last heartbeat is older than its timeout, and this process has
    itself seen that heartbeat unchanged for two of the worker's heartbeat intervals, without losing contact with the
    database meanwhile. After an outage, or after the database's clock was set, every heartbeat is too old by that clock
    for a moment: two intervals are enough for all living workers to beat again.
    """

    def __init__(self, clock: Callable[[], float] = lease_clock, *, longest_gap: float = math.inf) -> None:
        self._clock = clock
        # Seconds. After a longer gap between two looks, all workers are watched anew: a beat in the gap was not seen.
        self._longest_gap = longest_gap
        self._looked_at = -math.inf
        # By worker id: the last beat, and the time since which it has been seen unchanged.
        self._watched: dict[str, tuple[float, float]] = {}
        self._in_contact_since = -math.inf
        self._until_next = math.inf

    def find_dead(
        self, late: Sequence[recovery.LateWorker], *, in_contact_since: float = -math.inf
    ) -> list[recovery.LateWorker]:
        """Return the late workers that are dead."""
        now = self._clock()
        if now - self._looked_at > self._longest_gap:
            self.reset()
        self._looked_at = now
        self._in_contact_since = in_contact_since
        self._watched = {worker.id: (worker.beaten_at, self._since(worker)) for worker in late}
        remaining = {worker.id: self._remaining(worker) for worker in late}
        self._until_next = min((seconds for seconds in remaining.values() if seconds > 0), default=math.inf)
        return [worker for worker in late if remaining[worker.id] <= 0]

    @property
    def until_next(self) -> float:
        """Seconds from the last look until another worker may be dead; infinity if no other worker is late."""
        return self._until_next

    def reset(self) -> None:
        """Watch all workers anew, because contact with the database was lost."""
        self._watched.clear()

    def _since(self, worker: recovery.LateWorker) -> float:
        beaten_at, since = self._watched.get(worker.id, (None, self._looked_at))
        return since if beaten_at == worker.beaten_at else self._looked_at

    def _remaining(self, worker: recovery.LateWorker) -> float:
        """Return the seconds until the worker is dead, if it does not beat again."""
        # Minus infinity while there is no contact. Time before the contact began does not count as watched.
        watched = self._looked_at - max(self._watched[worker.id][1], self._in_contact_since)
        if worker.silent_seconds < 0:
            # The beat is in the future: the database's clock was set back, so the age of the beat is unknown.
            return worker.timeout_seconds - watched
        silence = worker.timeout_seconds - worker.silent_seconds
        return max(silence, BEATS_WATCHED * worker.heartbeat_seconds - watched)


class Recovery(Service):
    """The service that looks for dead workers. It reads the current state of the database, and relies on no events."""

    name = "recovery"

    def __init__(self, worker: DatabaseWorker, *, clock: Callable[[], float] = lease_clock) -> None:
        super().__init__(on_trouble=worker.reports.database_trouble)
        self._worker = worker
        self._database = worker.database("recovery")
        self._timeout = worker.settings.worker_timeout
        self._heartbeat_interval = worker.settings.heartbeat_interval
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
            self._worker.recovery_begins(self._database)
            return self._look()
        except BaseException:
            self._detector.reset()
            raise

    def close(self) -> None:
        self._database.close()

    def _look(self) -> float:
        self._renew_long_claims()
        fleet = self._read_fleet()
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
        return self._detector.find_dead(fleet.late, in_contact_since=self._worker.heartbeat.in_contact_since)

    def _read_fleet(self) -> recovery.Fleet:
        with self._database.cursor() as cursor:
            fleet = recovery.read_fleet(
                cursor,
                schema=self._database.schema,
                timeout=self._timeout,
                heartbeat=self._heartbeat_interval,
                now=self._worker.now(),
                go_on_at=self._continue_at,
            )
        self._continue_at = fleet.reached
        return fleet

    def _recover(self, dead: Sequence[recovery.LateWorker], unregistered: Sequence[str]) -> recovery.Recovered:
        if not dead and not unregistered:
            return recovery.Recovered()
        schema = self._database.schema
        with self._database.cursor() as cursor:
            by = self._worker.worker_id
            removed = recovery.remove_dead_workers(cursor, dead, schema=schema, by=by)
            worker_ids = list(dict.fromkeys([*removed, *unregistered]))
            recovered = recovery.recover_claims(
                cursor, worker_ids, schema=schema, now=self._worker.now(), keeping=self._worker.result_keeping(), by=by
            )
        if recovered.cancelled:
            self._worker.cancelled_jobs_recovered(recovered.cancelled)
        if recovered.dead_worker_ids:
            self._worker.jobs_recovered(recovered)
        if recovered.job_ids or recovered.queue_ids:
            self._worker.wake_others(self._database, max(len(recovered.job_ids), 1))
        return recovered

    def _renew_long_claims(self) -> None:
        if self._clock() - self._renewed_at < RENEWAL_INTERVAL:
            return
        worker_id, schema = self._worker.worker_id, self._database.schema
        with self._database.cursor() as cursor:
            workers.renew_claims(cursor, worker_id, schema=schema, spared=self._worker.unrenewable_job_ids())
        self._renewed_at = self._clock()

    def _clean_up(self) -> None:
        schema, settings = self._database.schema, self._worker.settings
        with self._database.cursor() as cursor:
            unlocked = recovery.release_stale_locks(
                cursor,
                schema=schema,
                now=self._worker.now(),
                keeping=self._worker.result_keeping(),
                by=self._worker.worker_id,
            )
            recovery.forget_ended(cursor, schema=schema)
            statistics.prune(cursor, schema=schema, older_than=settings.statistics_retention)
            statistics.prune_samples(cursor, schema=schema, older_than=settings.statistics_retention)
            events.prune(cursor, schema=schema, older_than=settings.events_retention)
            self._progress_after = progress.forget_ended(cursor, schema=schema, after=self._progress_after)
        if unlocked.cancelled:
            self._worker.cancelled_jobs_recovered(unlocked.cancelled)
        if unlocked.jobs or unlocked.queues:
            self._worker.stale_locks_released(unlocked)

    def _check_indexes(self) -> None:
        """Report missing indexes: without them the worker finds every job slowly, and nothing else shows the cause."""
        with self._database.cursor() as cursor:
            missing, incomplete = lacking_indexes(cursor, schema=self._database.schema)
        if missing or incomplete:
            self._worker.reports.indexes_missed(missing, incomplete)
