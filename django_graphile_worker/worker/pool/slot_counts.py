"""What a pool is asked for: how many jobs run and wait, and how many more it could run."""

from __future__ import annotations

from collections.abc import Callable

from django_graphile_worker.worker.pool.coroutine_slots import CoroutineSlots
from django_graphile_worker.worker.pool.line import Line
from django_graphile_worker.worker.pool.threads import PoolThreads
from django_graphile_worker.worker.pool.totals import PoolTotals
from django_graphile_worker.worker.work_units import WorkUnit


class SlotCounts:
    """The slots of a pool, the line before them, and the answers about both."""

    def __init__(self, concurrency: int, work: Callable[[int], None]) -> None:
        self.concurrency = concurrency
        # How many slots are to rest although jobs wait.
        self._surplus = 0
        # What waits, in order. Slots take from it; a slot that finds nothing rests until it is called.
        self._line = Line()
        # What each thread runs. There is one more thread than jobs may run at once: a thread may run the fetcher.
        self._current: list[WorkUnit | None] = [None] * (concurrency + 1)
        self._threads = PoolThreads(work, most=concurrency)
        # The jobs that run without a thread.
        self.coroutines = CoroutineSlots(self._threads)
        self._totals = PoolTotals(concurrency + 1)

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
        return bool(self._line) and (self._threads.could_do_more or self._surplus > 0) and self._has_room

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
