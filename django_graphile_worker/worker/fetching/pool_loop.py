"""A loop that the threads of the pool run in turns."""

from __future__ import annotations

import threading

from django_graphile_worker.worker.pool.slot_pool import SlotPool
from django_graphile_worker.worker.service import Loop, Trouble


class PoolLoop(Loop):
    """A loop without a thread of its own: the thread that claimed a job can run it, and another continues the loop."""

    def __init__(self, pool: SlotPool, *, on_trouble: Trouble | None = None) -> None:
        super().__init__(on_trouble=on_trouble)
        self._pool = pool
        # Seconds for which the next turn rests before its first round; None before the first turn.
        self._delay: float | None = None
        self._has_started = False
        self._is_over = threading.Event()
        self._is_over.set()

    def start(self) -> None:
        """Have the pool run the loop, once; a loop that was stopped before never starts."""
        if not self._has_started and not self.is_stopping:
            self._has_started = True
            self._is_over.clear()
            self._pool.share(self._take_turn)

    @property
    def has_started(self) -> bool:
        return self._has_started

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; return True when the loop is over."""
        return self._is_over.wait(timeout)

    @property
    def has_died(self) -> bool:
        """Has the loop ended without ``stop()``?"""
        return self._has_started and self._is_over.is_set() and not self.is_stopping

    def _take_turn(self) -> bool:
        """Run the loop until the thread has kept a job to run (return True), or until it is stopped (return False)."""
        has_kept = False
        try:
            while not has_kept and not self._stopping.is_set():
                if self._delay is not None:
                    self._rest_was_called = self.rest(self._delay)
                self._delay = self.round()
                has_kept = self._pool.has_kept
            return has_kept
        finally:
            if not has_kept:
                self.close()
                self._is_over.set()
