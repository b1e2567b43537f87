"""Threads that are started as they are needed, and rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_graphile_worker.worker.pool.threads import PoolThreads
from tests.conftest import WAIT_TIMEOUT

Wait = Callable[..., None]


def test_the_system_allows_no_more_threads__the_existing_ones_do_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = PoolThreads(lambda place: threads.wait_for_call(place), max_threads=3)
    threads.call(1)
    start = threading.Thread.start

    def refuse(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    threads.call(2)
    assert len(threads) == 1
    assert not threads.reserve()
    monkeypatch.setattr(threading.Thread, "start", start)
    threads.call_all()
    assert threads.join(60)


def test_the_system_allows_no_thread_at_all__is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start"):
        PoolThreads(lambda place: None, max_threads=3).call(1)


def test_work_that_came_before_the_rest__is_not_missed() -> None:
    threads = PoolThreads(lambda place: threads.wait_for_call(place), max_threads=1)
    threads.call(1)
    assert threads.join(WAIT_TIMEOUT)
    threads.rest(0, unless=lambda: True)
    assert threads.resting == 0


class Working(PoolThreads):
    """Threads that note their places when they are called, and rest again until all are called."""

    def __init__(self, most: int) -> None:
        super().__init__(self._note, max_threads=most)
        self.called: list[int] = []
        self.has_called = threading.Semaphore(0)
        self.has_ended = False

    def _note(self, place: int) -> None:
        self.wait_for_call(place)
        while not self.has_ended:
            self.called.append(place)
            self.has_called.release()
            self.rest(place, unless=lambda: self.has_ended)

    def call_and_wait(self, count: int, wait_until: Wait) -> None:
        self.call(count)
        for _ in range(count):
            assert self.has_called.acquire(timeout=WAIT_TIMEOUT)
        wait_until(lambda: self.resting == len(self))

    def end(self) -> None:
        self.has_ended = True
        self.call_all()
        assert self.join(WAIT_TIMEOUT)


@pytest.fixture
def working(wait_until: Wait) -> Iterator[Working]:
    """Twenty threads that rest."""
    threads = Working(20)
    threads.call_and_wait(20, wait_until)
    threads.called.clear()
    yield threads
    threads.end()


def test_reserved_thread__is_called_by_nothing_else(working: Working, wait_until: Wait) -> None:
    assert working.reserve()
    working.call(25)
    wait_until(lambda: len(working.called) == 19 and working.resting == 19)
    working.call_reserved()
    wait_until(lambda: len(working.called) == 20)
