"""What the recovery of a worker calls, beside ``part_callbacks``, which has the classes of the other parts."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from django_graphile_worker.worker.maintenance.backlog_sampler import BacklogSampler
from django_graphile_worker.worker.parts import Parts

if TYPE_CHECKING:
    from datetime import datetime

    from django_graphile_worker.sql.cancellations import CancelledJob
    from django_graphile_worker.sql.recovery import Recovered, Unlocked
    from django_graphile_worker.sql.result_keeping import ResultKeeping
    from django_graphile_worker.worker.database.connection import Database

# Seconds between two looks for parked jobs of tasks without limits.
UNPARK_INTERVAL = 60.0


class RecoveryCallbacks:
    """The ``RecoveryEvents`` of a worker: provides what the recovery needs, and reports what was recovered."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._unpark_at = 0.0
        self._sampler = BacklogSampler(now=parts.now, on_trouble=parts.events.database_trouble)

    def worker_id(self) -> str:
        return self._parts.worker_id

    def in_contact_since(self) -> float:
        return self._parts.heartbeat.in_contact_since

    def unrenewable_job_ids(self) -> list[int]:
        """Return the running atomic jobs: at REPEATABLE READ they could not delete a row that was renewed meanwhile."""
        running = (job.claim for job in self._parts.executor.running())
        task_of = self._parts.directory.task_of
        return [claim.id for claim in running if (task := task_of(claim.task_id)) and task.atomic]

    def now(self) -> datetime | None:
        return self._parts.now()

    def result_keeping(self) -> ResultKeeping:
        return self._parts.result_keeping()

    def before_recovery(self, database: Database) -> None:
        self._parts.schema_version.check_if_due(database)
        if not self._parts.is_draining:
            # The first job of a draining worker waits for its recovery: the runner writes the events at the end.
            self._parts.events.write_noted(database)
        if monotonic() >= self._unpark_at:
            found_all = self._unpark(database)
            # Again and again: a worker with the code of before may still run, and park more jobs until it stops.
            self._unpark_at = monotonic() + (UNPARK_INTERVAL if found_all else 0.0)
        # A draining worker looks once, and its first job waits for that look.
        if not self._parts.is_draining:
            self._sampler.sample(database)

    def _unpark(self, database: Database) -> bool:
        """End the parking of jobs whose tasks have no limits any more; return True if all were found."""
        # Late import: the first job need not wait for it.
        from django_graphile_worker.sql.limits import MAX_UNPARKED, unpark_tasks

        unlimited = [task_id for task_id, task in self._parts.directory.by_id.items() if not task.limits]
        with database.cursor() as cursor:
            return unpark_tasks(cursor, unlimited, schema=database.schema) < MAX_UNPARKED

    def cancelled_recovered(self, jobs: Sequence[CancelledJob]) -> None:
        if self._parts.task_reports is not None:
            self._parts.task_reports.ended(each.job for each in jobs)
        self._parts.events.cancelled_jobs_recovered(jobs)

    def jobs_recovered(self, recovered: Recovered) -> None:
        if self._parts.limited is not None:
            self._parts.limited.keeper.sweep_soon()
        if self._parts.task_reports is not None:
            self._parts.task_reports.ended(each.job for each in recovered.exhausted)
        self._parts.events.jobs_recovered(recovered)

    def stale_locks_released(self, unlocked: Unlocked) -> None:
        if self._parts.task_reports is not None:
            self._parts.task_reports.ended(each.job for each in unlocked.exhausted)
        self._parts.events.stale_locks_released(unlocked)

    def indexes_missed(self, missing: Sequence[str], incomplete: Sequence[str]) -> None:
        self._parts.events.indexes_missed(missing, incomplete)
