"""Frees the places of limited jobs that have ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import psycopg

from django_graphile_worker.sql.limits.places import free_places
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.limited.limited_tasks import LimitedTasks
from django_graphile_worker.worker.limited.start_deadlines import StartDeadlines

if TYPE_CHECKING:
    from django_graphile_worker.sql.claims import Claim

# The most claims whose places are freed later, after an error. A sweep frees the others.
MOST_KEPT = 10_000


class EndedClaims:
    """The limited claims that the releaser has ended. Used on the releaser's thread, after its commit."""

    def __init__(
        self,
        database: Database,
        tasks: LimitedTasks,
        *,
        deadlines: StartDeadlines,
        on_ready: Callable[[int, Database], None],
        on_trouble: Callable[[str, BaseException, float], None],
    ) -> None:
        self._database = database
        self._tasks = tasks
        self._deadlines = deadlines
        # Called with the number of lanes that have become ready.
        self._on_ready = on_ready
        self._on_trouble = on_trouble
        self._kept: list[Claim] = []

    def free(self, claims: Sequence[Claim]) -> None:
        """Free the places of limited jobs among these; an error leaves them to the next call, or to a sweep."""
        ended = [claim for claim in claims if self._tasks.is_limited(claim.task_id)]
        if not ended:
            return
        self._deadlines.forget(ended)
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
