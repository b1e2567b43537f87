"""Turns: the threads of a pool run one loop in turns, beside the jobs.

The loop is the fetcher's. The thread that has the turn and fetched a lone job may keep that job: it passes the turn
on and runs the job, while the next thread fetches. Waking a thread for the job would take longer than the worker
needed to claim it. This is the pool's part of the fast path, whose reason and figures are in ``fetching.fast_path``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from django_graphile_worker.worker.pool.threads import PoolThreads
from django_graphile_worker.worker.work_units import WorkUnit

# One thread's turn. Returns whether another thread is to continue.
Turn = Callable[[], bool]


class Turns:
    """Which thread runs the shared loop now, which is next, and what the thread with the turn has kept to run."""

    def __init__(self, threads: PoolThreads, current: list[WorkUnit | None]) -> None:
        self._threads = threads
        self._current = current
        # The turn that no thread has taken yet.
        self.open: deque[Turn] = deque()
        self._thread_in_turn: int | None = None
        self._kept: WorkUnit | None = None
        # Whether a resting thread is set aside for the next turn.
        self._has_successor = False

    def share(self, turn: Turn) -> None:
        """Have the threads do this in turns; there is a place for one more of them than may run jobs."""
        self._threads.most = len(self._current)
        self.open.append(turn)
        self._threads.call(1)

    def reserve_next(self) -> bool:
        """Set a thread aside for the next turn; return False unless the calling thread may keep what it fetched.

        It may keep it only if it has the turn, and if another thread can go on: a thread that rests or can be
        started, or, where all threads are started, a thread that looks for work by itself. There is such a thread
        while ``SlotPool.vacant`` is not zero.
        """
        if self._thread_in_turn != threading.get_ident():
            return False
        self._has_successor = self._threads.reserve()
        return self._has_successor or len(self._threads) >= self._threads.most

    def keep(self, unit: WorkUnit) -> None:
        """Have the calling thread run this when it has passed the turn on."""
        self._kept = unit

    @property
    def has_kept(self) -> bool:
        """Has the thread that has the turn kept something to run?"""
        return self._kept is not None

    def take(self, place: int) -> bool:
        """Take the turn, and pass it on; return False when it was the last.

        What the thread kept is in its place of ``current`` before the next turn begins: the next thread counts that
        slot as busy.
        """
        try:
            turn = self.open.popleft()
        except IndexError:
            return True
        self._thread_in_turn = threading.get_ident()
        goes_on = turn()
        self._current[place], self._kept = self._kept, None
        # Read before the turn is open: from then on a thread that has just ended a job may have taken it.
        has_successor, self._has_successor = self._has_successor, False
        if goes_on:
            self.open.append(turn)
        self._pass_on(goes_on, has_successor)
        return goes_on

    def _pass_on(self, goes_on: bool, has_successor: bool) -> None:
        """Call the thread that was set aside for the next turn, or any other; let it rest when no turn follows."""
        if has_successor:
            if goes_on:
                self._threads.call_reserved()
            else:
                self._threads.release_reserved()
        elif goes_on:
            self._threads.call(1)
