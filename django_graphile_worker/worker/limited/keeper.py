"""The keeper: the service that sorts limited jobs into lanes, and repairs what crashes and changes leave behind."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import close_old_connections

from django_graphile_worker.job_flags import EXPIRY_PREFIX, without_run_flags
from django_graphile_worker.limits import Overrides, definitions, keys_of
from django_graphile_worker.registry import Task
from django_graphile_worker.sql import limits
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.fetching.task_directory import TaskDirectory
from django_graphile_worker.worker.service import Service, jittered

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

    # A circle: LimitedWork has the lanes into which the keeper sorts.
    from django_graphile_worker.worker.limited.limited_work import LimitedWork

# How many jobs are sorted at once.
BATCH = 500
# Seconds. The jobs of a batch are locked while their keys are computed. The server ends a transaction that is idle for
# longer: the process was suspended, or a key function hangs.
LONGEST_COMPUTATION = 5.0

# Seconds between two sweeps: a place whose worker died without a release is free within this time after its lease.
SWEEP_INTERVAL = 5.0
# The keeper rests for this many times the duration of a sorting that has found nothing, or while ordinary jobs wait:
# they must not wait for the sorting of a backlog.
REST = 20
# The same while limited jobs wait in lanes: there is enough to run, but the job of another key may come first. Such a
# rest has a limit in seconds, because on a busy machine a sorting takes long without doing much.
SHORT_REST = 4
LONGEST_SHORT_REST = 0.01
# While jobs wait, so few are sorted at once: a sorting is short, then, and a new job is sorted soon.
SMALL_BATCH = 10
# Seconds. A sorting that has found nothing is short, whatever the clock says: other processes may have kept it waiting.
LONGEST_REST_AFTER_NOTHING = 0.02


class LimitedTasks:
    """The limited tasks in the directory of a worker."""

    def __init__(self, directory: TaskDirectory, overrides: Overrides) -> None:
        self._directory = directory
        # The setting LIMITS.
        self._overrides = overrides
        self._tasks: Mapping[int, Task[Any, Any]] | None = None
        # The parameters of statements, made again only when the directory has changed.
        self._expiries: dict[int, float | None] = {}
        self._numbers: dict[str, str] = {}

    @property
    def ids(self) -> Collection[int]:
        """The ids of the limited tasks that are not paused."""
        return self.expiries.keys()

    @property
    def numbers(self) -> Mapping[str, str]:
        """The numbers of all limits as the parameters of a statement."""
        self._read_directory()
        return self._numbers

    @property
    def expiries(self) -> Mapping[int, float | None]:
        """For the id of each limited task that is not paused, after how many seconds its jobs expire."""
        self._read_directory()
        return self._expiries

    @property
    def others(self) -> Sequence[int]:
        """The ids of the tasks of the worker that have no limits and are not paused."""
        return self._directory.ids

    def is_limited(self, task_id: int) -> bool:
        task = self._directory.task_of(task_id)
        return task is not None and bool(task.limits)

    def lane_of(self, job: limits.UnsortedJob) -> limits.Lane:
        """Return the lane of a job; calls the key functions of the project."""
        task = self._directory.by_id[job.task_id]
        return limits.Lane(
            task_id=job.task_id,
            queue_id=job.queue_id or 0,
            flags_text=_flags(job.flags_text),
            turn_limit=next((limit.name for limit in task.limits if limit.is_fair), None),
            keys=tuple((key.limit_name, key.text) for key in keys_of(task, job.payload_text)),
        )

    def _read_directory(self) -> None:
        tasks = self._directory.limited
        if tasks is not self._tasks:
            self._expiries = {task_id: task.expires for task_id, task in tasks.items()}
            self._numbers = limits.parameters_of(definitions(tasks.values(), self._overrides))
            self._tasks = tasks


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
        worker: DatabaseWorker,
        database: Database,
        tasks: LimitedTasks,
        *,
        idle_seconds: float | None = LONGEST_COMPUTATION,
        close_connections: Callable[[], None] = close_old_connections,
    ) -> None:
        self._worker = worker
        self._database = database
        self._tasks = tasks
        self._idle_seconds = idle_seconds
        # Called after key functions, which may have queried the database on this thread.
        self._close_connections = close_connections

    def sort(self, most: int = BATCH) -> Sorted:
        """Sort up to ``most`` due jobs."""
        schema = self._database.schema
        if not self._tasks.ids:
            return Sorted(0, 0, has_more=False, has_ready=False, seconds_until_next=None)
        # A lane with one of these flags is not ready for this worker.
        forbidden_flags = self._worker.forbidden_flags()
        with self._database.cursor() as cursor, cursor.connection.transaction():
            unsorted = limits.pick_unsorted(
                cursor,
                schema=schema,
                task_ids=self._tasks.ids,
                most=most,
                now=self._worker.now(),
                clock=self._worker.limit_time(),
                idle_seconds=self._idle_seconds,
                forbidden_flags=forbidden_flags,
            )
            jobs = self._lanes_of(unsorted.jobs)
            parked = limits.park(cursor, jobs, schema=schema) if jobs else limits.Parked(0, 0)
        has_ready = unsorted.has_ready or parked.ready_lanes > 0
        return Sorted(*parked, unsorted.has_more, has_ready, unsorted.seconds_until_next)

    def _lanes_of(self, jobs: list[limits.UnsortedJob]) -> list[limits.SortedJob]:
        try:
            return [limits.SortedJob(job, self._tasks.lane_of(job)) for job in jobs]
        finally:
            self._close_connections()


class Keeper(Service):
    """The service that keeps lanes in order. Key functions of the project run on its thread, and on no other."""

    name = "limits"

    def __init__(
        self, worker: DatabaseWorker, limited: LimitedWork, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(on_trouble=worker.events.database_trouble)
        self._worker = worker
        self._limited = limited
        self._tasks = limited.tasks
        self._database = worker.database("limits")
        self._sorter = Sorter(worker, self._database, limited.tasks)
        self._poll_interval = worker.settings.poll_interval
        self._clock = clock
        self._rests_until = 0.0
        self._look_at = 0.0
        # Whether jobs may have been added since the last look.
        self._is_called = True
        self._sweep_at = 0.0
        self._swept = limits.Swept()

    def step(self) -> float:
        """Sort a batch of jobs, and sweep if it is time; return the seconds until there may be more to do."""
        now = self._clock()
        if now < self._rests_until:
            return self._rests_until - now
        if not self._is_called and now < self._look_at:
            return self._look_at - now
        self._is_called = False
        if now >= self._sweep_at:
            self.sweep()
        self._look_at = self._clock() + self._sort()
        now = self._clock()
        return max(self._rests_until - now, 0.0) or max(self._look_at - now, 0.0)

    def call(self) -> bool:
        """Look for jobs to sort, as soon as the rest is over. Called by the thread that claims.

        In a draining worker the keeper has no thread, and the worker must not end before all is sorted. So the calling
        thread sorts a batch, and the answer is True if there may be more.
        """
        if self._worker.is_draining:
            return self._sort_now()
        # As elsewhere, whichever thread runs second sees what the other has set.
        self._is_called = True
        if self._clock() >= self._rests_until:
            self.wake()
        return False

    def sweep_soon(self) -> None:
        """Sweep with the next step: claims have ended without a release."""
        self._sweep_at = self._rests_until = 0.0
        self._is_called = True
        self.wake()

    def _sort_now(self) -> bool:
        if self._clock() >= self._sweep_at:
            self.sweep()
        found = self._sorter.sort()
        if found.has_ready:
            self._worker.lanes_ready(found.ready_lanes, self._database)
        return found.has_more

    def _sort(self) -> float:
        """Sort a batch; return the seconds until there may be more to do."""
        began = self._clock()
        factor, longest = self._rest()
        found = self._sorter.sort(SMALL_BATCH if factor else BATCH)
        ended = self._clock()
        if not found.parked:
            factor, longest = REST, LONGEST_REST_AFTER_NOTHING
        self._rests_until = ended + min(factor * (ended - began), longest)
        if found.has_ready:
            self._worker.lanes_ready(found.ready_lanes, self._database)
        if found.has_more:
            return 0.0
        until_next = self._poll_interval if found.seconds_until_next is None else found.seconds_until_next
        return max(min(until_next, self._poll_interval, self._sweep_at - ended), 0.0)

    def sweep(self) -> None:
        """Free places of claims that have ended, and look at some of the keys for which lanes wait."""
        schema, numbers = self._database.schema, self._tasks.numbers
        with self._database.cursor() as cursor:
            self._swept = limits.sweep(cursor, schema=schema, numbers=numbers, after=self._swept)
        now = self._clock()
        self._sweep_at = now + jittered(SWEEP_INTERVAL)
        if self._swept.woken:
            self._worker.lanes_ready(self._swept.woken, self._database)

    def _rest(self) -> tuple[int, float]:
        """Return how many times its duration the keeper rests after a sorting, and the most seconds of it."""
        claimer = self._limited.claimer
        if claimer.has_ordinary_backlog:
            return REST, math.inf
        return (SHORT_REST, LONGEST_SHORT_REST) if claimer.is_limited_waiting else (0, 0.0)

    def close(self) -> None:
        self._database.close()


def _flags(flags_text: str | None) -> str | None:
    """Return the flags that a worker may forbid. Times of expiry, and runs of schedules, would be a lane each."""
    flags = sorted(flag for flag in without_run_flags(flags_from(flags_text)) if not flag.startswith(EXPIRY_PREFIX))
    return json.dumps(dict.fromkeys(flags, True)) if flags else None
