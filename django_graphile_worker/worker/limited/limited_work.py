"""The parts of a worker for limited jobs, and what they call in its other parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_graphile_worker.worker.limited.claimer import FastPathBesideLimits, LimitedClaims, SharedClaimer
from django_graphile_worker.worker.limited.ended_claims import EndedClaims
from django_graphile_worker.worker.limited.keeper import Keeper
from django_graphile_worker.worker.limited.limited_tasks import LimitedTasks
from django_graphile_worker.worker.limited.sorter import Sorter
from django_graphile_worker.worker.limited.start_deadlines import StartDeadlines
from django_graphile_worker.worker.other_workers import wake_other_workers

if TYPE_CHECKING:
    from typing import Protocol

    from django_graphile_worker.conf import Settings
    from django_graphile_worker.worker.database.connection import Database
    from django_graphile_worker.worker.fetching.claimer import Claimer
    from django_graphile_worker.worker.fetching.fast_path import FastPath
    from django_graphile_worker.worker.fetching.fetcher import Fetcher
    from django_graphile_worker.worker.fetching.forbidden_flags import ForbiddenFlags
    from django_graphile_worker.worker.fetching.held_claims import HeldClaims
    from django_graphile_worker.worker.fetching.task_directory import TaskDirectory
    from django_graphile_worker.worker.job_clock import JobClock
    from django_graphile_worker.worker.maintenance.heartbeat import Heartbeat
    from django_graphile_worker.worker.outcomes import Outcome
    from django_graphile_worker.worker.pool.slot_pool import SlotPool
    from django_graphile_worker.worker.release.releaser import Releaser
    from django_graphile_worker.worker.reporting.events import WorkerEvents

    class WorkerParts(Protocol):
        """The parts of the worker that limited jobs use."""

        settings: Settings
        directory: TaskDirectory
        held: HeldClaims
        heartbeat: Heartbeat
        forbidden_flags: ForbiddenFlags
        now: JobClock
        claimer: Claimer
        claim_database: Database
        slots: SlotPool
        fetcher: Fetcher
        releaser: Releaser
        events: WorkerEvents


class LimitedWork:
    """What a worker with limited tasks has besides the parts of every worker."""

    def __init__(
        self, parts: WorkerParts, *, keeper_database: Database, releaser_database: Database, fast_path: FastPath
    ) -> None:
        self._parts = parts
        self.tasks = LimitedTasks(parts.directory, parts.settings.limits)
        self.deadlines = StartDeadlines()
        self.keeper = Keeper(
            database=keeper_database,
            sorter=Sorter(keeper_database, self.tasks, now=parts.now, forbidden_flags=parts.forbidden_flags),
            tasks=self.tasks,
            events=self,
            poll_interval=parts.settings.poll_interval,
            on_trouble=parts.events.database_trouble,
        )
        limited_claims = LimitedClaims(
            parts.claim_database,
            self.tasks,
            held=parts.held,
            forbidden_flags=parts.forbidden_flags,
            now=parts.now,
            deadlines=self.deadlines,
            on_server_time=parts.heartbeat.note_time_passed,
        )
        parts.claimer.limited_shapes = lambda: self.tasks.shapes
        self.claimer = SharedClaimer(parts.claimer, limited_claims, sort=self._call_keeper)
        self.fast_path = FastPathBesideLimits(fast_path, sort=self._call_keeper)
        self.ended = EndedClaims(
            releaser_database,
            self.tasks,
            deadlines=self.deadlines,
            on_ready=self.lanes_ready,
            on_trouble=parts.events.database_trouble,
        )

    def on_outcome(self, outcome: Outcome) -> None:
        """Release a job; other jobs may wait for the place of a limited job."""
        if self.tasks.is_limited(outcome.claim.task_id):
            self._parts.releaser.put_urgently(outcome)
        else:
            self._parts.releaser.put(outcome)

    def sort_while_draining(self) -> None:
        """Sort on the thread that claims: a draining worker has no keeper, and must not end before all is sorted."""
        self.claimer.sort = self.keeper.sort_now

    def ordinary_jobs_wait(self) -> bool:
        return self.claimer.has_ordinary_backlog

    def limited_jobs_wait(self) -> bool:
        return self.claimer.is_limited_waiting

    def lanes_ready(self, lanes: int, database: Database) -> None:
        """Claim limited jobs; notify other workers if more lanes have become ready than slots are free here."""
        parts = self._parts
        self.claimer.look_at_once()
        parts.fetcher.wake()
        if lanes > parts.slots.free and parts.settings.notify:
            wake_other_workers(database, lanes)

    def _call_keeper(self) -> bool:
        self.keeper.call()
        return False
