"""The part of the pool that starts jobs on the event loop, and takes their outcomes; see ``coroutine_slots``."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.outcomes import Outcome
from django_graphile_worker.worker.pool.slot_counts import SlotCounts
from django_graphile_worker.worker.pool.totals import LONGEST_TYPICAL
from django_graphile_worker.worker.work_units import WorkUnit

if TYPE_CHECKING:
    from django_graphile_worker.worker.pool.events import PoolEvents

# If fewer coroutines have started between two looks of the fetcher, which are two milliseconds apart, another thread
# starts coroutines, too: a receiver of a signal keeps the first. A thread that is not kept starts thirty.
FEW_STARTS = 8

# What the slots that run a job without a queue have in common: no other job of theirs waits, and they hold no queue.
LONE_JOB = WorkUnit([], None, 0.0)


class CoroutinePool(SlotCounts):
    """Slots for jobs that need no thread while they run, and what a slot does when its job has ended."""

    def __init__(self, concurrency: int, work: Callable[[int], None], events: PoolEvents) -> None:
        super().__init__(concurrency, work)
        # Bound here, which saves an attribute look-up for every job.
        self._may_begin = events.may_begin
        self._refuse = events.refuse
        self._coroutine_tasks = events.coroutine_tasks
        self._start_job = events.start_job
        self._resume_job = events.resume_job
        self._on_outcome = events.on_outcome
        self._on_wants_jobs = events.on_wants_jobs
        self._waiting = self._line.waiting
        # The length of the line at which the pool calls for jobs, and whether it has called: set once per refill, reset
        # by the fetcher before it claims.
        self.low_water = 0
        self.wants_jobs = True
        self._is_interrupted = False
        # How many jobs had left the line at the last call for coroutines. A thread that is called for jobs that others
        # start in time would stay awake as long as jobs wait, and of many such threads each mostly waits for the global
        # lock.
        self._passed = 0
        self._changed = threading.Event()
        self._is_change_awaited = False

    def call(self, slots: int) -> None:
        """Wake this many slots, but no more than jobs wait; for coroutines one slot, unless many have just started."""
        self._surplus = 0
        try:
            first = self._waiting[0]
        except IndexError:
            # Nothing waits any more.
            return
        if not self._are_coroutines([first]):
            self._threads.call(min(slots, len(self._waiting)))
            return
        passed, self._passed = self._passed, self._line.passed
        if self._passed - passed < FEW_STARTS and self._has_room:
            self._threads.call(1)

    def _call_for_coroutines(self, count: int) -> None:
        """Call a slot for coroutines that were put in the line, unless a coroutine waits before them.

        The slot that was called for that coroutine goes on with these.
        """
        try:
            is_called = self._are_coroutines([self._waiting[-count - 1]])
        except IndexError:
            is_called = False
        if not is_called:
            self._passed = self._line.passed
            self._threads.call(1)

    def _are_coroutines(self, units: Sequence[Claim | WorkUnit]) -> bool:
        """Whether one thread can start all of these jobs in a moment."""
        tasks = self._coroutine_tasks
        return all(isinstance(unit, Claim) and unit.task_id in tasks for unit in units)

    def _take_beside_coroutines(self, place: int) -> Claim | WorkUnit:
        """Take the next of the line; raise IndexError if there is none, or if as many jobs run as may."""
        with self.coroutines.lock:
            if self._running() > self.concurrency:
                # Under the lock: otherwise two threads could give way to each other.
                self._current[place] = None
                raise IndexError
            return self._waiting.popleft()

    def _start_kept(self, place: int, unit: WorkUnit) -> bool:
        """Start the job of a work unit that a thread has kept; return False if the job needs a thread."""
        if unit.queue is not None or not self._are_coroutines(unit.claims):
            return False
        try:
            claim = unit.claims.pop()
        except IndexError:
            # The job was removed and returned.
            self._leave(place)
        else:
            self._start_coroutine(place, claim)
        return True

    def _start_coroutine(self, place: int, claim: Claim) -> None:
        self._call_for_jobs()
        self._totals.begun_size[place] += len(claim.payload_text)
        if self._may_begin(claim):
            # First: a thread may resume the run before start_job() returns, and the receivers of a signal may be slow.
            self._give_slot_up(place)
            outcome = self._start_job(claim)
            if outcome is None:
                return
            self._take_slot_back(place)
        else:
            outcome = self._refuse(claim)
        self._pass_on(place, outcome)
        self._leave(place)

    def _resume_next(self, place: int, freed: int) -> int:
        """Resume runs that wait for a thread; return how many slots this thread has freed and called no thread for."""
        if self.coroutines.ended:
            return freed + self._resume_ended(place)
        freed = freed and self._call_for_freed(freed)
        self._resume_calling(place)
        # The slot of this run is used by this thread itself, if at all.
        return freed

    def _resume_ended(self, place: int) -> int:
        """Take the outcomes of the coroutines that have ended; return their number."""
        ended, freed = self.coroutines.ended, 0
        for _ in range(len(ended)):
            try:
                run = ended.popleft()
            except IndexError:
                break
            self._resume_run(place, run)
            freed += 1
        self._leave(place)
        return freed

    def _resume_calling(self, place: int) -> None:
        """Run the synchronous calls of a coroutine until it has ended."""
        with contextlib.suppress(IndexError):
            self._resume_run(place, self.coroutines.calling.popleft())
        self._leave(place)

    def _resume_run(self, place: int, run: Any) -> None:
        self._take_slot_back(place)
        self._pass_on(place, self._resume_job(run))

    def _give_slot_up(self, place: int) -> None:
        """Count a job that has a slot and no thread. In one step: a job that counts twice keeps another from its slot.

        The thread that takes a job counts, and rests if no slot is free. Nobody would call it a moment later.
        """
        with self.coroutines.lock:
            self.coroutines.count += 1
            self._current[place] = None

    def _take_slot_back(self, place: int) -> None:
        """Count a job that has got a thread, in one step as well."""
        with self.coroutines.lock:
            self._current[place] = LONE_JOB
            self.coroutines.count -= 1

    def _leave(self, place: int) -> None:
        self._current[place] = None
        if self._is_change_awaited:
            self._changed.set()
        self._call_for_jobs()

    def _call_for_freed(self, slots: int) -> int:
        """Call threads for slots that this thread has freed, because it cannot use them; return 0."""
        self._threads.call(min(slots, len(self._line)))
        return 0

    def _call_for_jobs(self) -> None:
        if not self.wants_jobs and len(self._waiting) <= self.low_water:
            self.wants_jobs = True
            self._on_wants_jobs()

    def _pass_on(self, place: int, outcome: Outcome, seconds: float | None = None) -> None:
        """Pass an outcome on; ``seconds`` is how long the thread was busy with it, with the receivers of signals."""
        if self._is_interrupted:
            return
        totals = self._totals
        duration = outcome.duration
        totals.busy_seconds[place] += duration
        if seconds is None:
            seconds = duration
        totals.typical_seconds[place] += seconds if seconds < LONGEST_TYPICAL else LONGEST_TYPICAL
        self._on_outcome(outcome)
        # Counted last: when another thread sees that the job has finished, its outcome must have been passed on.
        totals.finished[place] += 1
