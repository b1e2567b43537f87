"""The threads of a pool, which start as they are needed and rest while there is nothing to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue


class PoolThreads:
    """Threads that rest until they are called.

    ``resting`` counts the threads that rest and have not been called. A thread that is about to rest checks for work
    and counts itself under the lock. ``call()`` runs after the work has been put in place, and counts under the lock.
    So either the caller finds the thread, or the thread finds the work.
    """

    def __init__(self, work: Callable[[int], None], *, most: int) -> None:
        self._work = work
        # The largest number of threads.
        self.most = most
        self.resting = 0
        self._counting = threading.Lock()
        self._calls: SimpleQueue[bool] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def __len__(self) -> int:
        return len(self._threads)

    @property
    def could_do_more(self) -> bool:
        """Does a thread rest, or can another thread be started?"""
        return self.resting > 0 or len(self._threads) < self.most

    def call(self, count: int) -> None:
        """Wake this many resting threads, and start threads if too few rest.

        A thread that does not rest checks for work by itself.
        """
        with self._counting:
            while self.resting < count and self._add():
                pass
            called = min(count, self.resting)
            self.resting -= called
            for _ in range(called):
                self._calls.put(True)

    def call_all(self) -> None:
        for _ in self._threads:
            self._calls.put(True)

    def wait_for_call(self) -> None:
        self._calls.get()

    def rest(self, *, unless: Callable[[], object]) -> None:
        """Wait for a call, unless there is work. Called by a thread of the pool."""
        with self._counting:
            if unless():
                return
            self.resting += 1
        self._calls.get()

    def reserve(self) -> bool:
        """Reserve a resting thread, so that ``call()`` does not count on it; return False if no thread is available."""
        with self._counting:
            if not self.resting and not self._add():
                return False
            self.resting -= 1
            return True

    def call_reserved(self) -> None:
        """Wake the reserved thread."""
        self._calls.put(True)

    def release_reserved(self) -> None:
        """Cancel the reservation: the thread rests like the others."""
        with self._counting:
            self.resting += 1

    def place_of(self, thread_id: int) -> int | None:
        """Return the place of a thread of the pool; None for another thread."""
        for place, thread in enumerate(self._threads):
            if thread.ident == thread_id:
                return place
        return None

    def replace(self, place: int) -> None:
        """Start another thread in a place. The pool forgets the old thread, which must not return to the pool."""
        with self._counting:
            self._threads[place] = self._new(place)
            self._threads[place].start()
        self._calls.put(True)

    def _new(self, place: int) -> threading.Thread:
        return threading.Thread(target=self._work, args=(place,), name=f"graphile-worker-slot-{place}", daemon=True)

    def join(self, timeout: float) -> bool:
        """Wait for the end of all threads; return True when they have ended."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _add(self) -> bool:
        """Start a thread that rests, unless there are ``most`` threads. Called under the lock."""
        place = len(self._threads)
        if place >= self.most:
            return False
        thread = self._new(place)
        # Appended before the start: the new thread itself may add the next thread.
        self._threads.append(thread)
        try:
            thread.start()
        except RuntimeError:
            # The system allows no more threads; the existing threads do the work.
            self._threads.remove(thread)
            if not self._threads:
                raise
            return False
        self.resting += 1
        return True
