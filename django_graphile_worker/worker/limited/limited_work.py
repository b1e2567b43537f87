"""The parts of a worker for limited jobs, and what frees the places of those that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import psycopg

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.limits import free_places
from django_graphile_worker.worker.limited.claimer import LimitedClaims, SharedClaimer
from django_graphile_worker.worker.limited.keeper import Keeper, LimitedTasks

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# The most claims whose places are freed later, after an error. A sweep frees the others.
MAX_KEPT = 10_000


class LimitedWork:
    """What a worker with limited tasks has besides the parts of every worker."""

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker
        self._database = worker.release_database
        self.tasks = LimitedTasks(worker.directory, worker.settings.limits)
        self.keeper = Keeper(worker, self)
        self.claimer = SharedClaimer(worker.claimer, LimitedClaims(worker, self.tasks), self.keeper)
        # Claims whose places are not free yet.
        self._kept: list[Claim] = []

    # Called on the releaser's thread, after its commit.

    def free(self, claims: Sequence[Claim]) -> None:
        """Free the places of limited jobs among these; an error leaves them to the next call, or to a sweep."""
        ended = [claim for claim in claims if self.tasks.is_limited(claim.task_id)]
        if not ended:
            return
        self._kept = [*self._kept, *ended][:MAX_KEPT]
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
            self._worker.events.database_trouble("limits", error, 0.0)
            return
        self._kept = []
        if woken:
            self._worker.lanes_ready(woken, self._database)
