"""The slots of jobs that run on the event loop and have no thread, and the runs that wait for one.

A thread of the pool starts such a job and takes the next. Later a thread resumes the run: to take its outcome when its
coroutine has ended, or before that to run its synchronous calls. The pool does not know what a run is.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_graphile_worker.worker.pool.threads import PoolThreads


class CoroutineSlots:
    """How many jobs run without a thread, and which runs a thread has to resume."""

    def __init__(self, threads: PoolThreads) -> None:
        self._threads = threads
        # Held while a job gets or loses its thread, and while the jobs are counted.
        self.lock = threading.Lock()
        self.count = 0
        # The runs whose coroutines have ended, and the runs that keep a thread until they end.
        self.ended: deque[Any] = deque()
        self.calling: deque[Any] = deque()
        # The first run that had ended at the last look.
        self._first: Any = None

    @property
    def has_work(self) -> bool:
        return bool(self.ended or self.calling)

    def resume_ended(self, runs: Sequence[Any]) -> None:
        """Have a thread resume these runs, one after the other."""
        self.ended.extend(runs)
        self._threads.call(1)

    def look_again(self) -> bool:
        """Call a thread for each run that has ended, if they have waited since the last look; return False if none has.

        A receiver of a signal does slow work on the thread that was called: the others must not wait for it.
        """
        try:
            first = self.ended[0]
        except IndexError:
            self._first = None
            return False
        if first is self._first:
            self._threads.call(len(self.ended))
        self._first = first
        return True

    def resume(self, run: Any) -> None:
        """Have a thread resume this run, which keeps the thread until it ends."""
        self.calling.append(run)
        self._threads.call(1)
