"""The threads of a pool, the turns in which they run the fetcher, and the runs that wait for one of them.

Threads start as they are needed, and rest while there is nothing to do.

The fetcher has no thread of its own: the threads of the pool run it in turns. A thread that has claimed a job in its
turn can run it, and another thread takes the next turn: the job does not wait for a thread to wake up.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from django_graphile_worker.worker.pool.line import WorkUnit

# The turn of one thread. Returns True if another thread must take the next turn.
Turn = Callable[[], bool]


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

    def __init__(self, work: Callable[[int], None], *, max_threads: int) -> None:
        self._work = work
        self.max_threads = max_threads
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
        return bool(self._resting) or len(self._threads) < self.max_threads

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
        """Start a thread that rests, unless there are ``max_threads`` threads. Called under the lock."""
        place = len(self._threads)
        if place >= self.max_threads:
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


class Turns:
    """The thread that runs the loop now, the thread that is next, and the work unit that the first has kept."""

    def __init__(self, threads: PoolThreads, current: list[WorkUnit | None]) -> None:
        self._threads = threads
        self._current = current
        # The turn that no thread has taken yet.
        self.open: deque[Turn] = deque()
        self._thread_in_turn: int | None = None
        # The work unit that the thread with the turn runs when it has passed on the turn; then its turn must end.
        self.kept: WorkUnit | None = None
        # Whether a resting thread is reserved for the next turn.
        self._has_successor = False

    def share(self, turn: Turn) -> None:
        """Have the threads run this loop in turns, and allow one thread more than jobs may run at once."""
        self._threads.max_threads = len(self._current)
        self.open.append(turn)
        self._threads.call(1)

    def reserve_next(self) -> bool:
        """Reserve a thread for the next turn; return False unless the calling thread may keep the job that it claimed.

        The calling thread may keep the job only if it has the turn, and if another thread can take the next turn: a
        thread that rests or can be started, or, if all threads are started, a thread that checks for work by itself.
        There is such a thread while ``Pool.vacant`` is not zero.
        """
        if self._thread_in_turn != threading.get_ident():
            return False
        self._has_successor = self._threads.reserve()
        return self._has_successor or len(self._threads) >= self._threads.max_threads

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
        self._current[place], self.kept = self.kept, None
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


class CoroutineSlots:
    """The slots of jobs that run on the event loop and have no thread, and the runs that wait for one.

    A thread of the pool starts such a job and takes the next. Later a thread resumes the run: to take its outcome when
    its coroutine has ended, or before that to run its synchronous calls. The pool does not know what a run is.
    """

    def __init__(self, threads: PoolThreads) -> None:
        self._threads = threads
        # Held while a job gets or loses its thread, and while the jobs are counted.
        self.lock = threading.Lock()
        self.count = 0
        # The runs whose coroutines have ended, and the runs that keep a thread until they end.
        self.ended: deque[Any] = deque()
        self.calling: deque[Any] = deque()
        # The last run that had ended at the last check, and how many threads the next calls if it still waits.
        self._last: Any = None
        self._more = 1

    @property
    def has_work(self) -> bool:
        return bool(self.ended or self.calling)

    def resume_ended(self, runs: Sequence[Any]) -> None:
        """Have a thread resume these runs, one after the other."""
        self.ended.extend(runs)
        self._threads.call(1)

    def call_more(self) -> bool:
        """Call more threads if a run that had ended by the last call still waits; return False if none waits.

        A receiver of a signal does slow work on the threads that were called: the other runs must not wait for it. Each
        call wakes twice as many threads as the call before, because on a busy machine a few threads may be slow, too.
        """
        try:
            last = self.ended[-1]
        except IndexError:
            last = None
        if self._last is not None and self._last in self.ended:
            self._threads.call(min(self._more, len(self.ended)))
            self._more = min(self._more * 2, self._threads.max_threads)
        else:
            self._more = max(self._more // 2, 1)
        self._last = last
        return last is not None

    def resume(self, run: Any) -> None:
        """Have a thread resume this run, which keeps the thread until it ends."""
        self.calling.append(run)
        self._threads.call(1)
