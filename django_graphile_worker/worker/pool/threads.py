"""The threads of a pool, which start as they are needed and rest while there is nothing to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class PoolThreads:
    """Threads that rest until they are called.

    A thread that is about to rest checks for work and notes itself as resting under the lock. ``call()`` runs after the
    work has been put in place, and takes the noted threads under the lock. So either the caller finds the thread, or
    the thread finds the work.

    Each thread rests at a gate of its own, a lock that ``call()`` releases. If all of them waited at one queue, a call
    would wake two threads: the thread that gets the item releases the lock of the queue, so another thread wakes up,
    finds nothing and waits again. The thread that began to rest last is called first: what it needs is still in the
    caches of the processor, and fewer threads open connections to the database.
    """

    def __init__(self, work: Callable[[int], None], *, most: int) -> None:
        self._work = work
        # The largest number of threads.
        self.most = most
        self._counting = threading.Lock()
        # The gates of the threads that rest and have not been called, and of the threads that are reserved.
        self._resting: list[threading.Lock] = []
        self._reserved: list[threading.Lock] = []
        self._are_all_called = False
        # One for each place.
        self._gates: list[threading.Lock] = []
        self._threads: list[threading.Thread] = []

    def __len__(self) -> int:
        return len(self._threads)

    @property
    def resting(self) -> int:
        """The number of threads that rest and have not been called."""
        return len(self._resting)

    @property
    def could_do_more(self) -> bool:
        """Does a thread rest, or can another thread be started?"""
        return bool(self._resting) or len(self._threads) < self.most

    def call(self, count: int) -> None:
        """Wake this many resting threads, and start threads if too few rest.

        A thread that does not rest checks for work by itself.
        """
        resting = self._resting
        with self._counting:
            while len(resting) < count and self._add():
                pass
            for _ in range(min(count, len(resting))):
                resting.pop().release()

    def call_all(self) -> None:
        """Wake every resting thread, and have none rest that is reserved now: the work has ended."""
        with self._counting:
            self._are_all_called = True
            while self._resting:
                self._resting.pop().release()

    def wait_for_call(self, place: int) -> None:
        """Wait for the first call. Called by a new thread of the pool."""
        self._gates[place].acquire()

    def rest(self, place: int, *, unless: Callable[[], object]) -> None:
        """Wait for a call, unless there is work. Called by the thread of this place."""
        gate = self._gates[place]
        with self._counting:
            if unless():
                return
            self._resting.append(gate)
        gate.acquire()

    def reserve(self) -> bool:
        """Reserve a resting thread, so that ``call()`` does not count on it; return False if no thread is available."""
        with self._counting:
            if not self._resting and not self._add():
                return False
            self._reserved.append(self._resting.pop())
            return True

    def call_reserved(self) -> None:
        """Wake a reserved thread."""
        self._reserved.pop().release()

    def release_reserved(self) -> None:
        """Cancel a reservation: the thread rests like the others."""
        with self._counting:
            gate = self._reserved.pop()
            if self._are_all_called:
                gate.release()
            else:
                self._resting.append(gate)

    def place_of(self, thread_id: int) -> int | None:
        """Return the place of a thread of the pool; None for another thread."""
        for place, thread in enumerate(self._threads):
            if thread.ident == thread_id:
                return place
        return None

    def replace(self, place: int) -> None:
        """Start another thread in a place. The pool forgets the old thread, which must not return to the pool."""
        with self._counting:
            # A gate that is open: the new thread has work.
            self._gates[place] = threading.Lock()
            self._threads[place] = self._new(place)
            self._threads[place].start()

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
        thread, gate = self._new(place), threading.Lock()
        gate.acquire()
        # Appended before the start: the new thread waits at its gate, and may itself add the next thread.
        self._threads.append(thread)
        self._gates.append(gate)
        try:
            thread.start()
        except RuntimeError:
            # The system allows no more threads; the existing threads do the work.
            self._threads.remove(thread)
            self._gates.remove(gate)
            if not self._threads:
                raise
            return False
        self._resting.append(gate)
        return True
