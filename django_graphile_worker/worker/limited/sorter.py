"""Sorts due jobs of limited tasks into lanes, and parks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from django.db import close_old_connections

from django_graphile_worker.sql.limits import sorting
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.job_clock import JobClock
from django_graphile_worker.worker.limited.limited_tasks import LimitedTasks

# How many jobs are sorted at once.
BATCH = 500
# Seconds. The jobs of a batch are locked while their keys are computed. The server ends a transaction that is idle for
# longer: the process was suspended, or a key function hangs.
LONGEST_COMPUTATION = 5.0


class Sorted(NamedTuple):
    """What a sorting has found."""

    parked: int
    # How many of the lanes of these jobs are ready.
    ready_lanes: int
    # Whether there may be more jobs to sort.
    has_more: bool
    # Whether a claim may find a limited job now.
    has_ready: bool
    # When the next limited job falls due or a key opens; None if nothing is known.
    seconds_until_next: float | None


class Sorter:
    """Sorts jobs on a connection of the worker, or in a test on that of the test."""

    def __init__(
        self,
        database: Database,
        tasks: LimitedTasks,
        *,
        now: JobClock,
        forbidden_flags: Callable[[], Sequence[str]] = tuple,
        clock: Callable[[], datetime | None] = lambda: None,
        idle_seconds: float | None = LONGEST_COMPUTATION,
        close_connections: Callable[[], None] = close_old_connections,
    ) -> None:
        self._database = database
        self._tasks = tasks
        self._now = now
        # A lane with one of these flags is not ready for this worker.
        self._forbidden_flags = forbidden_flags
        # The time of windows in a test.
        self._clock = clock
        self._idle_seconds = idle_seconds
        # Called after key functions, which may have queried the database on this thread.
        self._close_connections = close_connections

    def sort(self, most: int = BATCH) -> Sorted:
        """Sort up to ``most`` due jobs."""
        shapes, schema = self._tasks.shapes, self._database.schema
        if not shapes:
            return Sorted(0, 0, has_more=False, has_ready=False, seconds_until_next=None)
        forbidden_flags = self._forbidden_flags()
        with self._database.cursor() as cursor, cursor.connection.transaction():
            unsorted = sorting.pick_unsorted(
                cursor,
                schema=schema,
                shapes=shapes,
                most=most,
                now=self._now(),
                clock=self._clock(),
                idle_seconds=self._idle_seconds,
                forbidden_flags=forbidden_flags,
            )
            jobs = self._lanes_of(unsorted.jobs)
            parked = sorting.park(cursor, jobs, schema=schema) if jobs else sorting.Parked(0, 0)
        has_ready = unsorted.has_ready or parked.ready_lanes > 0
        return Sorted(*parked, unsorted.has_more, has_ready, unsorted.seconds_until_next)

    def _lanes_of(self, jobs: list[sorting.UnsortedJob]) -> list[sorting.SortedJob]:
        try:
            return [sorting.SortedJob(job, self._tasks.lane_of(job)) for job in jobs]
        finally:
            self._close_connections()

    def close(self) -> None:
        self._database.close()
