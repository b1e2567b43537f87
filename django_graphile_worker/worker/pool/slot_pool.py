"""The slots: threads that run jobs, and the line of claimed jobs that wait for one of them.

A slot runs one work unit at a time. The jobs in the line are already claimed, so they must be few, start soon, and be
returned if they do not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import EndedWithoutThread, Interrupted, Outcome
from django_graphile_worker.worker.pool.fetch_turns import Turn, Turns
from django_graphile_worker.worker.pool.line import Line
from django_graphile_worker.worker.pool.threads import PoolThreads
from django_graphile_worker.worker.pool.totals import PoolTotals
from django_graphile_worker.worker.work_units import WorkUnit

if TYPE_CHECKING:
    from django_graphile_worker.worker.pool.events import PoolEvents

# What the slots that run a job without a queue have in common: no other job of theirs waits, and they hold no queue.
LONE_JOB = WorkUnit([], None, 0.0)


class SlotPool:
    """The threads that run jobs, started as they are needed: at most ``concurrency`` jobs run at once."""

    def __init__(self, concurrency: int, events: PoolEvents) -> None:
        self.concurrency = concurrency
        # Bound here, which saves an attribute look-up for every job.
        self._run = events.run
        self._may_begin = events.may_begin
        self._refuse = events.refuse
        self._on_outcome = events.on_outcome
        self._on_queue_done = events.on_queue_done
        self._on_wants_jobs = events.on_wants_jobs
        self._on_thread_end = events.on_thread_end
        # What waits, in order. Slots take from it; a slot that finds nothing rests until it is called.
        self._line = Line()
        self._waiting = self._line.waiting
        # What each thread runs. There is one more thread than jobs may run at once: a thread may run the fetcher.
        self._current: list[WorkUnit | None] = [None] * (concurrency + 1)
        self._threads = PoolThreads(self._work, most=concurrency)
        self._turns = Turns(self._threads, self._current)
        self._totals = PoolTotals(concurrency + 1)
        # The length of the line at which the pool calls for jobs, and whether it has called: set once per refill, reset
        # by the fetcher before it claims.
        self.low_water = 0
        self.wants_jobs = True
        self._is_interrupted = False
        self._is_ending = False
        self._changed = threading.Event()
        self._is_change_awaited = False
        # Held while jobs are removed and returned: a slot whose work unit is empty must not release the queue before
        # the removed jobs of the queue have been passed to the releaser.
        self.removal_lock = threading.Lock()

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
        if not any(self._current):
            return 0 if self._line else self.concurrency
        return 0 if self.has_waiting else self.concurrency - self.running()

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

    @property
    def has_waiting(self) -> bool:
        """Is there a claimed job that has not begun?"""
        return self.backlog > 0 or any(unit is not None and unit.claims for unit in self._current)

    @property
    def could_do_more(self) -> bool:
        """Does a work unit wait although a slot rests or can be started?"""
        return bool(self._line) and self._threads.could_do_more

    def submit(self, units: Sequence[Claim | WorkUnit], *, callers: int) -> None:
        """Put jobs and work units in the line, and call this many slots: for short jobs a few are quicker than all.

        Python runs one thread at a time. Ten threads that wake up to run ten jobs of ten
        microseconds mostly wait for each other, and so does the thread that claims.
        """
        self._totals.submit(units)
        self._line.extend(units)
        self._threads.call(min(callers, len(units)))

    def call(self, slots: int) -> None:
        """Wake this many resting slots, and start slots if too few rest."""
        self._threads.call(slots)

    def share(self, turn: Turn) -> None:
        """Have the threads run this loop in turns, beside the jobs; see ``fetch_turns``."""
        self._turns.share(turn)

    def keep(self, unit: WorkUnit) -> bool:
        """Have the calling thread run this work unit after its turn; return False if it may not.

        Called in a turn, while ``vacant`` is not zero: then another thread can take the next turn.
        """
        if not self._turns.reserve_next():
            return False
        self._totals.submit_one(unit)
        self._turns.keep(unit)
        return True

    @property
    def has_kept(self) -> bool:
        """Has the thread that has the turn kept a work unit? If so, its turn must end."""
        return self._turns.has_kept

    def pass_outcomes_to(self, on_outcome: Callable[[Outcome], None]) -> None:
        """Call another function than ``PoolEvents.on_outcome()`` with each outcome, from now on."""
        self._on_outcome = on_outcome

    def check_begin(self, may_begin: Callable[[Claim], bool]) -> None:
        """Call another function than ``PoolEvents.may_begin()`` before each job, from now on."""
        self._may_begin = may_begin

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
        place = self._threads.place_of(thread_id)
        if place is None:
            return None
        unit, self._current[place] = self._current[place], None
        self._totals.finished[place] += 1
        rest = None if unit is None else WorkUnit(unit.remove_waiting(), unit.queue, unit.submitted_at)
        if rest is not None:
            self._totals.remove([rest])
        self._threads.replace(place)
        self._changed.set()
        self._call_for_jobs()
        return rest

    def running(self) -> int:
        return sum(unit is not None for unit in self._current)

    def stop(self) -> None:
        """Have every thread end, as soon as the line is empty and it has finished its work unit or turn."""
        self._is_ending = True
        self._threads.call_all()

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
        return self._threads.join(timeout)

    def _work(self, place: int) -> None:
        take, current, open_turns = self._waiting.popleft, self._current, self._turns.open
        try:
            self._threads.wait_for_call()
            while True:
                # The turn comes first: otherwise every thread could run a job, and no thread would fetch until a job
                # ends.
                if open_turns:
                    if self._take_turn(place):
                        continue
                    return
                try:
                    unit = take()
                except IndexError:
                    if self._is_ending:
                        return
                    self._threads.rest(unless=self._has_work)
                    continue
                if isinstance(unit, Claim):
                    current[place] = LONE_JOB
                    self._run_lone(place, unit)
                else:
                    current[place] = unit
                    self._run_in(place, unit)
                # Not kept while the thread rests: its payload may be large.
                del unit
        except EndedWithoutThread:
            # replace_thread() has given the slot to another thread.
            return
        finally:
            self._on_thread_end()

    def _has_work(self) -> bool:
        return bool(self._line or self._turns.open or self._is_ending)

    def _take_turn(self, place: int) -> bool:
        """Take the turn, then run the work unit that the thread kept; return False when there are no more turns."""
        goes_on = self._turns.take(place)
        unit = self._current[place]
        if unit is not None:
            self._run_in(place, unit)
        return goes_on

    def _run_in(self, place: int, unit: WorkUnit) -> None:
        self._call_for_jobs()
        self._run_unit(place, unit)
        self._current[place] = None
        if self._is_change_awaited:
            self._changed.set()
        self._call_for_jobs()

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

    def _call_for_jobs(self) -> None:
        if not self.wants_jobs and len(self._waiting) <= self.low_water:
            self.wants_jobs = True
            self._on_wants_jobs()

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
                self._on_queue_done(unit.queue)

    def _run_claim(self, place: int, claim: Claim) -> None:
        totals = self._totals
        totals.begun_size[place] += len(claim.payload_text)
        # While the process was suspended, another worker may have recovered and claimed the job.
        outcome = self._run(claim) if self._may_begin(claim) else self._refuse(claim)
        if self._is_interrupted:
            return
        totals.busy_seconds[place] += outcome.duration
        # Not kept on this frame while the next job runs: the outcome has the task's result, which may be large.
        self._on_outcome(outcome)
        # Counted last: when another thread sees that the job has finished, its outcome must have been passed on.
        totals.finished[place] += 1
