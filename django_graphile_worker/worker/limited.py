"""Tasks with limits: their jobs are sorted into lanes, claimed from there, and free their places when they have ended.

``Keeper`` sorts the jobs, and repairs what crashes and changes leave behind. ``SharedClaimer`` shares the free slots
between limited and ordinary jobs. ``LimitedWork`` owns both.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from django.db import close_old_connections

from django_graphile_worker.job_flags import names_in
from django_graphile_worker.limits import Overrides, definitions, keys_of
from django_graphile_worker.registry import Task
from django_graphile_worker.sql import limits
from django_graphile_worker.sql.claims import Claim, Claimed
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.limits import LimitedClaimed, claim_limited, free_places
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.fetching.claimable import TaskDirectory
from django_graphile_worker.worker.fetching.claimer import Claimer
from django_graphile_worker.worker.service import Service, jittered

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

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

# The most claims whose places are freed later, after an error. A sweep frees the others.
MAX_KEPT = 10_000

NOTHING = LimitedClaimed(claims=[], has_more=False, seconds_until_next=None)


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
            self._worker.reports.database_trouble("limits", error, 0.0)
            return
        self._kept = []
        if woken:
            self._worker.lanes_ready(woken, self._database)


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

    def sort(self, max_jobs: int = BATCH) -> Sorted:
        """Sort up to ``max_jobs`` due jobs."""
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
                max_jobs=max_jobs,
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
        super().__init__(on_trouble=worker.reports.database_trouble)
        self._worker = worker
        self._limited = limited
        self._tasks = limited.tasks
        self._database = worker.database("limits")
        self._sorter = Sorter(worker, self._database, limited.tasks)
        self._poll_interval = worker.settings.poll_interval
        self._clock = clock
        self._rests_until = 0.0
        self._sort_at = 0.0
        # Whether jobs may have been added since the last look.
        self._is_called = True
        self._sweep_at = 0.0
        self._swept = limits.Swept()

    def step(self) -> float:
        """Sort a batch of jobs, and sweep if it is time; return the seconds until there may be more to do."""
        now = self._clock()
        if now < self._rests_until:
            return self._rests_until - now
        if not self._is_called and now < self._sort_at:
            return self._sort_at - now
        self._is_called = False
        if now >= self._sweep_at:
            self.sweep()
        self._sort_at = self._clock() + self._sort()
        now = self._clock()
        return max(self._rests_until - now, 0.0) or max(self._sort_at - now, 0.0)

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
    """Return the flags that a worker may forbid. Times of expiry, headers and schedules would be a lane each."""
    flags = sorted(names_in(flags_from(flags_text)))
    return json.dumps(dict.fromkeys(flags, True)) if flags else None


class LimitedClaims:
    """The claim statement of limited jobs, bound to the worker's connection."""

    def __init__(self, worker: DatabaseWorker, tasks: LimitedTasks) -> None:
        self._worker = worker
        self._database = worker.claim_database
        self._tasks = tasks

    def claim(self, max_jobs: int) -> LimitedClaimed:
        """Claim limited jobs for free slots: they start at once."""
        if not self._tasks.ids:
            return NOTHING
        claimed = self._worker.held.hold(lambda: self._claim(max_jobs))
        if claimed is None:
            return replace(NOTHING, has_more=True)
        if claimed.expired_at is not None:
            # These jobs are not counted. The slots must come to the same result, whatever they know of that clock.
            self._worker.heartbeat.note_time_passed(claimed.expired_at)
        return claimed

    def _claim(self, max_jobs: int) -> LimitedClaimed:
        worker = self._worker
        with self._database.cursor() as cursor:
            return claim_limited(
                cursor,
                schema=self._database.schema,
                token=worker.held.next_token(),
                expiries=self._tasks.expiries,
                other_tasks=self._tasks.others,
                numbers=self._tasks.numbers,
                max_jobs=max_jobs,
                forbidden_flags=worker.forbidden_flags(),
                now=worker.now(),
                clock=worker.limit_time(),
            )


class SharedClaimer:
    """Claims limited jobs into free slots, and ordinary jobs into the rest. While both wait, each gets half."""

    def __init__(self, ordinary: Claimer, limited: LimitedClaims, keeper: Keeper) -> None:
        self._ordinary = ordinary
        self._limited = limited
        self._keeper = keeper
        # When the next claim of limited jobs may find one: set by other threads, too.
        self._claim_limited_at = -math.inf
        # Whether the last claim has left jobs that could run. Other threads read it.
        self.is_limited_waiting = False
        self.has_ordinary_backlog = False
        # The same, or True when the last claim had no room for ordinary jobs, and did not look for any.
        self._may_ordinary_wait = False
        # Who gets the odd slot.
        self._is_turn_of_limited = True

    def claim_limited_soon(self) -> None:
        """Have the next claim look for limited jobs: a lane has become ready."""
        self._claim_limited_at = -math.inf

    def claim(self, *, max_jobs: int, max_per_queue: int, max_bytes: int, free_slots: int) -> Claimed:
        """Claim jobs within the limits of ``claims.claim_jobs``. Limited jobs are claimed for free slots only."""
        has_unsorted = self._keeper.call()
        if free_slots < 1 and self._may_ordinary_wait and time.monotonic() >= self._claim_limited_at:
            # Until a claim has looked, jobs that are claimed ahead must not take every slot that becomes free.
            self.is_limited_waiting = True
        are_both_waiting = self.is_limited_waiting and self._may_ordinary_wait
        if are_both_waiting and free_slots < 1:
            # No jobs ahead: they would take the slots of limited jobs. A slot that takes a waiting job calls again.
            return Claimed(claims=[], seconds_until_next=None, has_more=True, waits_for_slot=True)
        share = self._share_of_limited(free_slots) if are_both_waiting else free_slots
        limited = self._claim_limited(share)
        room = (free_slots if are_both_waiting else max_jobs) - len(limited.claims)
        if room < 1:
            self._may_ordinary_wait = True
            return Claimed(claims=limited.claims, seconds_until_next=None, has_more=True)
        try:
            ordinary = self._ordinary.claim(
                max_jobs=room,
                max_per_queue=max_per_queue,
                max_bytes=max_bytes,
                free_slots=max(free_slots - len(limited.claims), 0),
            )
        except Exception:
            if not limited.claims:
                raise
            # The limited jobs are claimed, and must run. The next claim meets the error again, or it has passed.
            self._may_ordinary_wait = True
            return Claimed(claims=limited.claims, seconds_until_next=None, has_more=True)
        self._may_ordinary_wait = self.has_ordinary_backlog = ordinary.has_more
        together = self._together(limited, ordinary)
        return replace(together, has_more=True) if has_unsorted else together

    def _share_of_limited(self, free_slots: int) -> int:
        half, odd = divmod(free_slots, 2)
        if odd:
            self._is_turn_of_limited = not self._is_turn_of_limited
        return half + (odd if self._is_turn_of_limited else 0)

    def _claim_limited(self, share: int) -> LimitedClaimed:
        if share < 1 or (not self.is_limited_waiting and time.monotonic() < self._claim_limited_at):
            return replace(NOTHING, has_more=self.is_limited_waiting)
        # Before the statement: what becomes ready meanwhile is for the next claim.
        self._claim_limited_at = math.inf
        limited = self._limited.claim(share)
        self.is_limited_waiting = limited.has_more
        if limited.seconds_until_next is not None:
            self._claim_limited_at = min(self._claim_limited_at, time.monotonic() + limited.seconds_until_next)
        return limited

    def _together(self, limited: LimitedClaimed, ordinary: Claimed) -> Claimed:
        until_limited = max(self._claim_limited_at - time.monotonic(), 0.0)
        times = [ordinary.seconds_until_next, None if math.isinf(until_limited) else until_limited]
        return replace(
            ordinary,
            claims=[*limited.claims, *ordinary.claims],
            seconds_until_next=min((seconds for seconds in times if seconds is not None), default=None),
            has_more=ordinary.has_more or limited.has_more,
        )
