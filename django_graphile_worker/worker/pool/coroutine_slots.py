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
        # The last run that had ended at the last look, and how many threads the next look calls if it still waits.
        self._last: Any = None
        self._more = 1

    @property
    def has_work(self) -> bool:
        return bool(self.ended or self.calling)

    def resume_ended(self, runs: Sequence[Any]) -> None:
        """Have a thread resume these runs, one after the other."""
        self.ended.extend(runs)
        self._threads.call(1)

    def look_again(self) -> bool:
        """Call more threads if a run that had ended by the last look still waits; return False if none waits.

        A receiver of a signal does slow work on the threads that were called: the other runs must not wait for it. Each
        look calls twice as many threads as the look before, because on a busy machine a few threads may be slow, too.
        """
        try:
            last = self.ended[-1]
        except IndexError:
            last = None
        if self._last is not None and self._last in self.ended:
            self._threads.call(min(self._more, len(self.ended)))
            self._more = min(self._more * 2, self._threads.most)
        else:
            self._more = max(self._more // 2, 1)
        self._last = last
        return last is not None

    def resume(self, run: Any) -> None:
        """Have a thread resume this run, which keeps the thread until it ends."""
        self.calling.append(run)
        self._threads.call(1)
