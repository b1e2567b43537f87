"""The turns of a pool's threads, at moments that threads rarely meet."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from django_graphile_worker.worker.pool.line import WorkUnit
from django_graphile_worker.worker.pool.threads import PoolThreads, Turn, Turns


class CountedThreads(PoolThreads):
    """Threads that only exist as numbers: how many rest, and how many were called."""

    def __init__(self, *, resting: int) -> None:
        super().__init__(lambda place: None, max_threads=resting + 1)
        self._threads = [threading.Thread() for _ in range(self.max_threads)]
        self._gates = [threading.Lock() for _ in range(self.max_threads)]
        for gate in self._gates:
            gate.acquire()
        self._resting = self._gates[:resting]

    @property
    def called(self) -> int:
        return sum(not gate.locked() for gate in self._gates)


def kept_turn(turns: Turns) -> Callable[[], bool]:
    def turn() -> bool:
        assert turns.reserve_next()
        turns.kept = WorkUnit([], None, 0.0)
        return True

    return turn


def test_a_thread_set_aside__is_called_also_when_another_takes_the_turn_first() -> None:
    """A thread that has just ended a job takes the turn, and keeps a job itself, before the first has passed it on."""
    threads = CountedThreads(resting=3)
    turns = Turns(threads, [None] * 4)
    others = iter([1])

    class TakenAtOnce(deque[Any]):
        def append(self, turn: Turn) -> None:
            super().append(turn)
            for place in others:
                thread = threading.Thread(target=turns.take, args=(place,))
                thread.start()
                thread.join()

    turns.open = TakenAtOnce([kept_turn(turns)])
    assert turns.take(0)
    # Two turns have ended, each with a thread set aside: both were called, and one rests.
    assert (threads.called, threads.resting) == (2, 1)
