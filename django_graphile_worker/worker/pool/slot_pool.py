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
from django_graphile_worker.worker.pool.coroutine_pool import LONE_JOB, CoroutinePool
from django_graphile_worker.worker.pool.fetch_turns import Turn, Turns
from django_graphile_worker.worker.work_units import WorkUnit

if TYPE_CHECKING:
    from django_graphile_worker.worker.pool.events import PoolEvents


class SlotPool(CoroutinePool):
    """The threads that run jobs, started as they are needed: at most ``concurrency`` jobs run at once."""

    def __init__(self, concurrency: int, events: PoolEvents) -> None:
        super().__init__(concurrency, self._work, events)
        # Bound here, which saves an attribute look-up for every job.
        self._run = events.run
        self._on_queue_done = events.on_queue_done
        self._on_thread_end = events.on_thread_end
        self._turns = Turns(self._threads, self._current)
        self._is_ending = False
        # Held while jobs are removed and returned: a slot whose work unit is empty must not release the queue before
        # the removed jobs of the queue have been passed to the releaser.
        self.removal_lock = threading.Lock()

    def submit(self, units: Sequence[Claim | WorkUnit], *, callers: int) -> None:
        """Put jobs and work units in the line, and call this many slots, or one slot if none runs a job."""
        self._totals.submit(units)
        self._surplus = 0
        self._line.extend(units)
        # Checked after the line has the jobs: a slot that has found the line empty looks again before it rests.
        if units and self._are_coroutines(units):
            self._call_for_coroutines(len(units))
        else:
            self._threads.call(min(callers or int(not self.running()), len(units)))

    def rest(self, slots: int) -> None:
        """Have this many slots rest when their jobs have ended, although jobs wait."""
        self._surplus = slots

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
        coroutines, coroutine_tasks = self.coroutines, self._coroutine_tasks
        # The slots that this thread has freed for others: no thread was called for them.
        freed = 0
        try:
            self._threads.wait_for_call(place)
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
                    self._threads.rest(place, unless=self._has_work)
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
            self._on_thread_end()

    def _has_work(self) -> bool:
        return bool((self._line and self._has_room) or self._turns.open or self.coroutines.has_work or self._is_ending)

    def _resume_or_rest(self, place: int, freed: int) -> int:
        """Resume runs that wait for a thread, or rest if slots are to rest; return as ``_resume_next()`` does."""
        if self.coroutines.has_work:
            return self._resume_next(place, freed)
        freed = freed and self._call_for_freed(freed)
        self._threads.rest(place, unless=self._is_needed)
        return freed

    def _is_needed(self) -> bool:
        """Return whether the calling thread must go on; if not, it rests. Called under the lock of the threads."""
        if self._is_ending:
            self._surplus = 0
        is_needed = self._surplus < 1 or self._turns.open or self.coroutines.has_work
        if not is_needed:
            self._surplus -= 1
        return bool(is_needed)

    def _take_turn(self, place: int) -> bool:
        """Take the turn, then run the work unit that the thread kept; return False when there are no more turns."""
        goes_on = self._turns.take(place)
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
                self._on_queue_done(unit.queue)

    def _run_claim(self, place: int, claim: Claim) -> None:
        self._totals.begun_size[place] += len(claim.payload_text)
        # While the process was suspended, another worker may have recovered and claimed the job.
        started = time.monotonic()
        outcome = self._run(claim) if self._may_begin(claim) else self._refuse(claim)
        self._pass_on(place, outcome, time.monotonic() - started)
