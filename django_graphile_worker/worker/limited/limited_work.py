"""The parts of a worker for limited jobs, and what they call in its other parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import psycopg

from django_graphile_worker.sql.limits import free_places
from django_graphile_worker.worker.limited.claimer import FastPathBesideLimits, LimitedClaims, SharedClaimer
from django_graphile_worker.worker.limited.keeper import Keeper, Sorter
from django_graphile_worker.worker.limited.limited_tasks import LimitedTasks
from django_graphile_worker.worker.other_workers import wake_other_workers

if TYPE_CHECKING:
    from typing import Protocol

    from django_graphile_worker.conf import Settings
    from django_graphile_worker.sql.claims import Claim
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


# The most claims whose places are freed later, after an error. A sweep frees the others.
MOST_KEPT = 10_000


class EndedClaims:
    """The limited claims that the releaser has ended. Used on the releaser's thread, after its commit."""

    def __init__(
        self,
        database: Database,
        tasks: LimitedTasks,
        *,
        on_ready: Callable[[int, Database], None],
        on_trouble: Callable[[str, BaseException, float], None],
    ) -> None:
        self._database = database
        self._tasks = tasks
        # Called with the number of lanes that have become ready.
        self._on_ready = on_ready
        self._on_trouble = on_trouble
        self._kept: list[Claim] = []

    def free(self, claims: Sequence[Claim]) -> None:
        """Free the places of limited jobs among these; an error leaves them to the next call, or to a sweep."""
        ended = [claim for claim in claims if self._tasks.is_limited(claim.task_id)]
        if not ended:
            return
        self._kept = [*self._kept, *ended][:MOST_KEPT]
        self._free()

    def free_queues(self, queue_ids: Sequence[int]) -> None:
        """Make lanes ready that wait for these queues, which were released."""
        self._free(queue_ids)

    def _free(self, queue_ids: Sequence[int] = ()) -> None:
        try:
            with self._database.cursor() as cursor:
                woken = free_places(cursor, self._kept, schema=self._database.schema, queue_ids=queue_ids)
        except psycopg.Error as error:
            # The release itself is committed, and must not be repeated.
            self._on_trouble("limits", error, 0.0)
            return
        self._kept = []
        if woken:
            self._on_ready(woken, self._database)


class LimitedWork:
    """What a worker with limited tasks has besides the parts of every worker."""

    def __init__(
        self, parts: WorkerParts, *, keeper_database: Database, releaser_database: Database, fast_path: FastPath
    ) -> None:
        self._parts = parts
        self.tasks = LimitedTasks(parts.directory, parts.settings.limits)
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
            on_server_time=parts.heartbeat.note_time_passed,
        )
        parts.claimer.limited_tasks = lambda: self.tasks.ids
        self.claimer = SharedClaimer(parts.claimer, limited_claims, sort=self._call_keeper)
        self.fast_path = FastPathBesideLimits(fast_path, sort=self._call_keeper)
        self.ended = EndedClaims(
            releaser_database,
            self.tasks,
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
