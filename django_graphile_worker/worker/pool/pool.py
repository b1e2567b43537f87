"""The pool: the slots that run jobs, and the line of claimed jobs that wait for one of them.

A slot runs one work unit at a time, on a thread or, if it is a coroutine, without one. The jobs in the line are already
claimed, so they must be few, start soon, and be returned if they do not.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import EndedWithoutThread, Interrupted, Outcome
from django_graphile_worker.worker.pool.line import Line, WorkUnit, size_of
from django_graphile_worker.worker.pool.threads import CoroutineSlots, PoolThreads, Turns

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# If fewer coroutines have started between two looks of the fetcher, which are two milliseconds apart, another thread
# starts coroutines, too: a receiver of a signal keeps the first. A thread that is not kept starts thirty.
FEW_STARTS = 8

# Seconds: a longer job counts as long as this for the typical duration of jobs.
LONGEST_TYPICAL = 0.002

# What the slots that run a job without a queue have in common: no other job of theirs waits, and they hold no queue.
LONE_JOB = WorkUnit([], None, 0.0)


class Pool:
    """The slots of a worker: at most ``concurrency`` jobs run at once."""

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker
        self.concurrency = worker.settings.concurrency
        executor = worker.executor
        # Bound here, which saves an attribute look-up for every job.
        self._run = executor.run
        self._coroutine_tasks = executor.coroutine_tasks
        self._start_job = executor.start_job
        self._resume_job = executor.resume_job
        self._may_begin = worker.may_begin
        self._on_outcome = worker.job_ended
        # How many slots are to rest although jobs wait.
        self._surplus = 0
        # What waits, in order. Slots take from it; a slot that finds nothing rests until it is called.
        self._line = Line()
        self._waiting = self._line.waiting
        # What each thread runs. There is one more thread than jobs may run at once: a thread may run the fetcher.
        self._current: list[WorkUnit | None] = [None] * (self.concurrency + 1)
        self.threads = PoolThreads(self._work, max_threads=self.concurrency)
        # The loop that the threads run in turns, beside the jobs.
        self.turns = Turns(self.threads, self._current)
        # The jobs that run without a thread.
        self.coroutines = executor.event_loop.threads = CoroutineSlots(self.threads)
        self._totals = PoolTotals(self.concurrency + 1)
        # The length of the line at which the pool calls for jobs, and whether it has called: set once per refill, reset
        # by the fetcher before it claims.
        self.low_water = 0
        self.wants_jobs = True
        self._is_interrupted = False
        self._is_ending = False
        # How many jobs had left the line at the last call for coroutines. A thread that is called for jobs that others
        # start in time would stay awake as long as jobs wait, and of many such threads each mostly waits for the global
        # lock.
        self._passed = 0
        self._changed = threading.Event()
        self._is_change_awaited = False
        # Held while jobs are removed and returned: a slot whose work unit is empty must not release the queue before
        # the removed jobs of the queue have been passed to the releaser.
        self.removal_lock = threading.Lock()

    # What the fetcher puts in.

    def submit(self, units: Sequence[Claim | WorkUnit], *, callers: int) -> None:
        """Put jobs and work units in the line, and call this many slots, or one slot if none runs a job."""
        self._totals.submit(units)
        self._surplus = 0
        self._line.extend(units)
        # Checked after the line has the jobs: a slot that has found the line empty looks again before it rests.
        if units and self._are_coroutines(units):
            self._call_for_coroutines(len(units))
        else:
            self.threads.call(min(callers or int(not self.running()), len(units)))

    def rest(self, slots: int) -> None:
        """Have this many slots rest when their jobs have ended, although jobs wait."""
        self._surplus = slots

    def keep(self, unit: WorkUnit) -> bool:
        """Have the calling thread run this work unit after its turn; return False if it may not.

        Called in a turn, while ``vacant`` is not zero: then another thread can take the next turn.
        """
        if not self.turns.reserve_next():
            return False
        self._totals.submit_one(unit)
        self.turns.kept = unit
        return True

    def call(self, slots: int) -> None:
        """Wake this many slots, but no more than jobs wait; for coroutines one slot, unless many have just started."""
        self._surplus = 0
        try:
            first = self._waiting[0]
        except IndexError:
            # Nothing waits any more.
            return
        if not self._are_coroutines([first]):
            self.threads.call(min(slots, len(self._waiting)))
            return
        passed, self._passed = self._passed, self._line.passed
        if self._passed - passed < FEW_STARTS and self._has_room:
            self.threads.call(1)

    def remove_waiting(self, *, waited_longer_than: float = 0.0) -> list[WorkUnit]:
        """Remove and return jobs that have not begun: the remaining jobs of busy slots, and the line."""
        horizon = time.monotonic() - waited_longer_than
        removed = [
            WorkUnit(rest, None, unit.submitted_at)
            for unit in self._current
            if unit is not None and unit.submitted_at <= horizon and (rest := unit.remove_waiting())
        ]
        removed += self._line.remove(horizon)
        self._totals.remove(removed)
        return removed

    def remove_queue(self, queue: HeldQueue) -> list[WorkUnit]:
        """Remove and return the jobs of a queue that have not begun, behind the job of the queue that runs."""
        units = [unit for unit in self._current if unit is not None and unit.queue == queue]
        removed = [WorkUnit(unit.remove_waiting(), None, unit.submitted_at) for unit in units]
        self._totals.remove(removed)
        return removed

    def replace_thread(self, thread_id: int) -> WorkUnit | None:
        """Give the slot of a thread to a new thread: its job has ended without it, and its outcome is passed on.

        Return the rest of its work unit: the jobs of a queue that have not begun, and the queue. The old thread ends
        when the task returns. Called under ``removal_lock``.
        """
        place = self.threads.place_of(thread_id)
        if place is None:
            return None
        unit, self._current[place] = self._current[place], None
        self._totals.finished[place] += 1
        rest = None if unit is None else WorkUnit(unit.remove_waiting(), unit.queue, unit.submitted_at)
        if rest is not None:
            self._totals.remove([rest])
        self.threads.replace(place)
        self._changed.set()
        self._call_for_jobs()
        return rest

    def stop(self) -> None:
        """Have every thread end, as soon as the line is empty and it has finished its work unit or turn."""
        self._is_ending = True
        self.threads.call_all()

    def begin_no_more(self) -> None:
        """Refuse the jobs that wait, and those that come, so that they are returned."""
        self._may_begin = lambda claim: False

    def interrupt_running(self, claims: Iterable[Claim]) -> list[Outcome | HeldQueue]:
        """Ignore the outcomes of the slots from now on; return outcomes that return these jobs, and their queues."""
        self._is_interrupted = True
        queues = {unit.queue for unit in self._current if unit is not None}
        return [*(Interrupted(claim, 0.0) for claim in claims), *(queue for queue in queues if queue is not None)]

    def wait_for_change(self, timeout: float) -> None:
        """Wait until a slot has finished a job or a work unit, at most for the timeout."""
        self._changed.clear()
        self._is_change_awaited = True
        self._changed.wait(timeout)
        self._is_change_awaited = False

    def join(self, timeout: float) -> bool:
        """Wait for the end of all threads; return True when they have ended."""
        return self.threads.join(timeout)

    # What other parts ask: how many jobs run and wait, and how many more could run.

    @property
    def backlog(self) -> int:
        """The number of jobs without a queue, and of work units, that wait for a slot."""
        return len(self._line)

    @property
    def free(self) -> int:
        """The number of slots with nothing to do, less the work units that wait for them."""
        return max(self.concurrency - self.running() - self.backlog, 0)

    @property
    def vacant(self) -> int:
        """The number of slots with nothing to do, if no job waits at all; else zero."""
        running = self.running()
        if not running:
            return 0 if self._line else self.concurrency
        return 0 if self.has_waiting else self.concurrency - running

    @property
    def waiting_size(self) -> int:
        """The size of the payloads of jobs that are claimed and have not begun, in characters."""
        return self._totals.waiting_size

    @property
    def is_idle(self) -> bool:
        return self._totals.have_all_ended and not any(self._current)

    def totals(self) -> tuple[int, float]:
        """Return the number of jobs that have finished so far, and the seconds that they took together."""
        return self._totals.measured()

    def typical_seconds(self) -> float:
        """Return the seconds that threads were busy with these jobs, with two milliseconds for each longer job."""
        return sum(self._totals.typical_seconds)

    def finished(self) -> list[int]:
        """Return the number of jobs that each thread has finished so far."""
        return self._totals.finished.copy()

    def running_since(self, finished: list[int]) -> int:
        """Return how many threads have finished a job since ``finished()`` returned this, and run another job."""
        now, current = self._totals.finished, self._current
        return sum(
            before < after and unit is not None for before, after, unit in zip(finished, now, current, strict=True)
        )

    @property
    def has_waiting(self) -> bool:
        """Is there a claimed job that has not begun?"""
        return self.backlog > 0 or any(unit is not None and unit.claims for unit in self._current)

    @property
    def could_do_more(self) -> bool:
        """Does a work unit wait although a slot rests, is about to rest, or can be started?"""
        return bool(self._line) and (self.threads.could_do_more or self._surplus > 0) and self._has_room

    @property
    def _has_room(self) -> bool:
        """Whether another job may begin, beside those that have no thread: otherwise the threads limit the jobs."""
        return not self.coroutines.count or self.running() < self.concurrency

    def running(self) -> int:
        """Return the number of jobs without a queue, and of work units, that have a slot."""
        with self.coroutines.lock:
            return self._running()

    def _running(self) -> int:
        """Return the same number. Called under the lock: a job that gets or loses its thread meanwhile counts once."""
        return len(self._current) - self._current.count(None) + self.coroutines.count

    # What a thread of the pool does.

    def _work(self, place: int) -> None:
        take, current, open_turns = self._waiting.popleft, self._current, self.turns.open
        coroutines, coroutine_tasks = self.coroutines, self._coroutine_tasks
        # The slots that this thread has freed for others: no thread was called for them.
        freed = 0
        try:
            self.threads.wait_for_call(place)
            while True:
                # The turn comes first: otherwise every thread could run a job, and no thread would fetch until a job
                # ends.
                if open_turns:
                    if self._take_turn(place):
                        continue
                    return
                if coroutines.ended or coroutines.calling or self._surplus > 0:
                    freed = self._resume_or_rest(place, freed)
                    continue
                # Before the check: a thread that counts the slots beside the coroutines counts this slot, or this
                # thread finds the coroutines.
                current[place] = LONE_JOB
                try:
                    unit = self._take_beside_coroutines(place) if coroutines.count else take()
                except IndexError:
                    freed, current[place] = 0, None
                    if self._is_ending:
                        return
                    self.threads.rest(place, unless=self._has_work)
                    continue
                if not isinstance(unit, Claim):
                    freed = freed and self._call_for_freed(freed - 1)
                    current[place] = unit
                    self._run_in(place, unit)
                elif unit.task_id in coroutine_tasks:
                    freed = max(freed - 1, 0)
                    self._start_coroutine(place, unit)
                else:
                    freed = freed and self._call_for_freed(freed - 1)
                    self._run_lone(place, unit)
                # Not kept while the thread rests: its payload may be large.
                del unit
        except EndedWithoutThread:
            # replace_thread() has given the slot to another thread.
            return
        finally:
            self._worker.executor.thread_finished()

    def _has_work(self) -> bool:
        return bool((self._line and self._has_room) or self.turns.open or self.coroutines.has_work or self._is_ending)

    def _resume_or_rest(self, place: int, freed: int) -> int:
        """Resume runs that wait for a thread, or rest if slots are to rest; return as ``_resume_next()`` does."""
        if self.coroutines.has_work:
            return self._resume_next(place, freed)
        freed = freed and self._call_for_freed(freed)
        self.threads.rest(place, unless=self._is_needed)
        return freed

    def _is_needed(self) -> bool:
        """Return whether the calling thread must go on; if not, it rests. Called under the lock of the threads."""
        if self._is_ending:
            self._surplus = 0
        is_needed = self._surplus < 1 or self.turns.open or self.coroutines.has_work
        if not is_needed:
            self._surplus -= 1
        return bool(is_needed)

    def _take_turn(self, place: int) -> bool:
        """Take the turn, then run the work unit that the thread kept; return False when there are no more turns."""
        goes_on = self.turns.take(place)
        unit = self._current[place]
        if unit is not None and not self._start_kept(place, unit):
            self._run_in(place, unit)
        return goes_on

    def _run_in(self, place: int, unit: WorkUnit) -> None:
        self._call_for_jobs()
        self._run_unit(place, unit)
        self._leave(place)

    def _run_lone(self, place: int, claim: Claim) -> None:
        # Compared here as well, because nearly every job comes this way and a call costs as much as ten comparisons.
        if not self.wants_jobs and len(self._waiting) <= self.low_water:
            self._call_for_jobs()
        self._run_claim(place, claim)
        self._current[place] = None
        if self._is_change_awaited:
            self._changed.set()
        if not self.wants_jobs and len(self._waiting) <= self.low_water:
            self._call_for_jobs()

    def _run_unit(self, place: int, unit: WorkUnit) -> None:
        claims = unit.claims
        while claims:
            try:
                claim = claims.pop()
            except IndexError:
                break
            self._run_claim(place, claim)
            if self._is_interrupted:
                return
        if unit.queue is not None:
            with self.removal_lock:
                self._worker.releaser.release_queue(unit.queue)

    def _run_claim(self, place: int, claim: Claim) -> None:
        self._totals.begun_size[place] += len(claim.payload_text)
        # While the process was suspended, another worker may have recovered and claimed the job.
        started = time.monotonic()
        outcome = self._run(claim) if self._may_begin(claim) else self._worker.refuse(claim)
        self._pass_on(place, outcome, time.monotonic() - started)

    def _leave(self, place: int) -> None:
        self._current[place] = None
        if self._is_change_awaited:
            self._changed.set()
        self._call_for_jobs()

    def _call_for_freed(self, slots: int) -> int:
        """Call threads for slots that this thread has freed, because it cannot use them; return 0."""
        self.threads.call(min(slots, len(self._line)))
        return 0

    def _call_for_jobs(self) -> None:
        if not self.wants_jobs and len(self._waiting) <= self.low_water:
            self.wants_jobs = True
            self._worker.fetcher.wake()

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

    # The same for jobs that need no thread while they run.

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
            self.threads.call(1)

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
            outcome = self._worker.refuse(claim)
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


class PoolTotals:
    """Counts of jobs, not of work units: a work unit that moves from the line to a slot is for a moment in neither.

    The counts that change with every job are lists with one number for each thread: only that thread writes its
    number, so no lock is needed.
    """

    def __init__(self, threads: int) -> None:
        self._submitted = 0
        self._removed = 0
        # The same counts as sizes of payloads, in characters, to know the size of the jobs that have not begun.
        self._submitted_size = 0
        self._removed_size = 0
        self.begun_size = [0] * threads
        self.finished = [0] * threads
        self.busy_seconds = [0.0] * threads
        # How long the threads were busy with jobs, with the receivers of signals, and without most of the time of jobs
        # that take long or had to wait for other threads.
        self.typical_seconds = [0.0] * threads

    def submit(self, units: Sequence[Claim | WorkUnit]) -> None:
        claims = [unit for unit in units if type(unit) is Claim]
        self._submitted += len(claims)
        self._submitted_size += size_of(claims)
        if len(claims) < len(units):
            for unit in units:
                if isinstance(unit, WorkUnit):
                    self.submit_one(unit)

    def submit_one(self, unit: WorkUnit) -> None:
        self._submitted += len(unit.claims)
        self._submitted_size += size_of(unit.claims)

    def remove(self, units: Sequence[WorkUnit]) -> None:
        self._removed += sum(len(unit.claims) for unit in units)
        self._removed_size += sum(unit.size for unit in units)

    @property
    def waiting_size(self) -> int:
        """The size of the payloads of jobs that are claimed and have not begun, in characters."""
        return self._submitted_size - self._removed_size - sum(self.begun_size)

    @property
    def have_all_ended(self) -> bool:
        ended = self._removed + sum(self.finished)
        return self._submitted == ended

    def measured(self) -> tuple[int, float]:
        """Return the number of jobs that have finished so far, and the seconds that they took together."""
        return sum(self.finished), sum(self.busy_seconds)
