"""Turns: the threads of a pool run one loop in turns, beside the jobs.

The loop is the loop of the fetcher. The thread that has the turn and has claimed a single job may keep that job: it
passes on the turn and runs the job, while the next thread fetches. Waking another thread for the job would take longer
than the worker needed to claim it. This is the pool's part of the fast path, whose reason and figures are in
``fetching.fast_path``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from django_graphile_worker.worker.pool.threads import PoolThreads
from django_graphile_worker.worker.work_units import WorkUnit

# The turn of one thread. Returns True if another thread must take the next turn.
Turn = Callable[[], bool]


class Turns:
    """The thread that runs the loop now, the thread that is next, and the work unit that the first has kept."""

    def __init__(self, threads: PoolThreads, current: list[WorkUnit | None]) -> None:
        self._threads = threads
        self._current = current
        # The turn that no thread has taken yet.
        self.open: deque[Turn] = deque()
        self._thread_in_turn: int | None = None
        self._kept: WorkUnit | None = None
        # Whether a resting thread is reserved for the next turn.
        self._has_successor = False

    def share(self, turn: Turn) -> None:
        """Have the threads run this loop in turns, and allow one thread more than jobs may run at once."""
        self._threads.most = len(self._current)
        self.open.append(turn)
        self._threads.call(1)

    def reserve_next(self) -> bool:
        """Reserve a thread for the next turn; return False unless the calling thread may keep the job that it claimed.

        The calling thread may keep the job only if it has the turn, and if another thread can take the next turn: a
        thread that rests or can be started, or, if all threads are started, a thread that checks for work by itself.
        There is such a thread while ``SlotPool.vacant`` is not zero.
        """
        if self._thread_in_turn != threading.get_ident():
            return False
        self._has_successor = self._threads.reserve()
        return self._has_successor or len(self._threads) >= self._threads.most

    def keep(self, unit: WorkUnit) -> None:
        """Have the calling thread run this work unit after it has passed on the turn."""
        self._kept = unit

    @property
    def has_kept(self) -> bool:
        """Has the thread that has the turn kept a work unit?"""
        return self._kept is not None

    def take(self, place: int) -> bool:
        """Take the turn, and pass it on; return False if it was the last turn.

        The work unit that the thread kept is in its place of ``current`` before the next turn begins: so the next
        thread counts that slot as busy.
        """
        try:
            turn = self.open.popleft()
        except IndexError:
            return True
        self._thread_in_turn = threading.get_ident()
        goes_on = turn()
        self._current[place], self._kept = self._kept, None
        # Read before the turn is open: from then on, a thread that has just ended a job may take the turn.
        has_successor, self._has_successor = self._has_successor, False
        if goes_on:
            self.open.append(turn)
        self._pass_on(goes_on, has_successor)
        return goes_on

    def _pass_on(self, goes_on: bool, has_successor: bool) -> None:
        """Call the reserved thread, or any other, for the next turn; cancel the reservation if no turn follows."""
        if has_successor:
            if goes_on:
                self._threads.call_reserved()
            else:
                self._threads.release_reserved()
        elif goes_on:
            self._threads.call(1)
