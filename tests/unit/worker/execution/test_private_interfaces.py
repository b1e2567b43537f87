"""Interfaces of other packages that they do not document, and that running a job relies on."""

from __future__ import annotations

import asyncio
import json
import json.decoder
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async

from django_graphile_worker.worker.execution.event_loop import _call_next


class OwnExecutor(Executor):
    """An executor that calls at once, and counts."""

    def __init__(self) -> None:
        self.calls = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future


def test_asgiref__passes_synchronous_calls_to_the_executor_of_the_context() -> None:
    executor, key = OwnExecutor(), ThreadSensitiveContext()

    async def call() -> str:
        SyncToAsync.thread_sensitive_context.set(key)
        SyncToAsync.context_to_thread_executor[key] = executor
        return await sync_to_async(lambda: "called")()

    assert asyncio.run(call()) == "called"
    assert executor.calls == 1, (
        "asgiref no longer finds an executor in SyncToAsync.context_to_thread_executor under the key in "
        "SyncToAsync.thread_sensitive_context: adapt CoroutineRun, or the ORM of async tasks leaves its thread."
    )


def test_json_decoder__scans_a_value_from_an_index() -> None:
    scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
    for text in ('{"a": [1, 2.5, null]}', "[]", '"text"', "7", "true", '{"a": 1} '):
        assert scan(text, 0) == (json.loads(text), len(text.rstrip())), (
            "json.JSONDecoder().scan_once(text, 0) no longer returns (value, end): adapt JobRun.decode()."
        )
    for text, expected in [("", StopIteration), (" 1", StopIteration), ("x", StopIteration), ("[1", ValueError)]:
        with pytest.raises(expected):
            pytest.fail(
                f"expected json.JSONDecoder().scan_once({text!r}, 0) to raise {expected.__name__}, got "
                f"{scan(text, 0)!r}: adapt JobRun.decode()."
            )


def test_json_whitespace__matches_the_white_space_of_json_at_a_position() -> None:
    whitespace = json.decoder.WHITESPACE  # type: ignore[attr-defined]
    assert [whitespace.match("1 \t\r\n2", position).end() for position in (0, 1, 5)] == [0, 5, 5], (
        "json.decoder.WHITESPACE no longer matches from a position: adapt results._after_whitespace()."
    )


def test_asyncio_loop__keeps_waiting_callbacks_in_a_deque() -> None:
    loop = asyncio.new_event_loop()
    called: list[str] = []
    try:
        assert isinstance(getattr(loop, "_ready", None), deque), (
            "the event loop of asyncio no longer has a deque _ready: adapt _call_next() of event_loop, or a process "
            "that a coroutine forked runs the steps of other jobs."
        )
        loop.call_soon(called.append, "a step of another job")
        _call_next(loop, lambda: called.append("next"))
        loop.call_soon(loop.stop)
        loop.run_forever()
    finally:
        loop.close()
    assert called == ["next", "a step of another job"], "_call_next() of event_loop is no longer called first."
