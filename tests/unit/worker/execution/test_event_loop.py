"""How the event loop and the threads that wait for its coroutines wake each other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from django_graphile_worker.worker.execution.event_loop import EventLoop
from django_graphile_worker.worker.outcomes import CancelledByWorker

DEADLINE = 60.0


@pytest.fixture
def event_loop() -> Iterator[EventLoop]:
    event_loop = EventLoop()
    yield event_loop
    event_loop.close(1.0)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(6) as pool:
        yield pool


async def answer() -> int:
    return 42


def test_cancel__wakes_the_thread_of_a_coroutine_that_has_ended_though_the_loop_is_blocked(
    event_loop: EventLoop, pool: ThreadPoolExecutor
) -> None:
    blocked, go_on = threading.Event(), threading.Event()

    def block(task: Any) -> None:
        blocked.set()
        go_on.wait(DEADLINE)

    async def end_before_the_loop_is_blocked() -> int:
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(block)
        return 7

    run = pool.submit(event_loop.run, end_before_the_loop_is_blocked)
    try:
        assert blocked.wait(DEADLINE)
        event_loop.cancel()
        assert run.result(DEADLINE) == 7
    finally:
        go_on.set()


class LateCall:
    """Keeps the thread that starts a coroutine from calling the loop until the test lets it."""

    def __init__(self, event_loop: EventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        self._event_loop = event_loop
        self._call = event_loop._loop.call_soon_threadsafe  # type: ignore[union-attr]
        self.is_due, self.may_call = threading.Event(), threading.Event()
        monkeypatch.setattr(event_loop._loop, "call_soon_threadsafe", self)

    def __call__(self, function: Any, *arguments: Any) -> Any:
        if function == self._event_loop._begin_waiting:
            self.is_due.set()
            assert self.may_call.wait(DEADLINE)
        return self._call(function, *arguments)

    def wait_for_loop(self) -> None:
        """Wait until the loop has done all that it was called for."""
        is_done = threading.Event()
        self._call(is_done.set)
        assert is_done.wait(DEADLINE)


@pytest.fixture
def late_call(event_loop: EventLoop, monkeypatch: pytest.MonkeyPatch) -> LateCall:
    assert event_loop.run(answer) == 42
    return LateCall(event_loop, monkeypatch)


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda event_loop: event_loop.cancel(), CancelledByWorker),
        (lambda event_loop: event_loop.stop(*event_loop._running), asyncio.CancelledError),
    ],
    ids=["cancel", "stop"],
)
def test_coroutine_that_has_to_end_before_the_loop_was_called__does_not_begin(
    event_loop: EventLoop,
    pool: ThreadPoolExecutor,
    late_call: LateCall,
    end: Callable[[EventLoop], None],
    error: type[BaseException],
) -> None:
    """A thread calls the loop without the lock, so another thread may cancel what the loop has not begun."""
    began: list[bool] = []

    async def work() -> None:
        began.append(True)

    ended = pool.submit(event_loop.run, work)
    assert late_call.is_due.wait(DEADLINE)
    end(event_loop)
    late_call.wait_for_loop()
    late_call.may_call.set()
    with pytest.raises(error):
        ended.result(DEADLINE)
    assert began == []


def test_loop_whose_thread_could_not_start__starts_with_the_next_coroutine(
    event_loop: EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that allows no more threads for a moment must not leave a loop that nobody runs."""
    refusals = [RuntimeError("can't start new thread")]
    start = threading.Thread.start

    def start_or_refuse(thread: threading.Thread) -> None:
        if thread.name == "graphile-worker-async" and refusals:
            raise refusals.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_refuse)
    with pytest.raises(RuntimeError, match="can't start"):
        event_loop.start(answer)
    assert event_loop.run(answer) == 42
