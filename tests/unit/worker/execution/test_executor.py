"""From a claim to its outcome: whatever a task does, the worker goes on."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import io
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.utils import timezone, translation

from django_graphile_worker import signals
from django_graphile_worker.payloads import RawPayload
from django_graphile_worker.worker.outcomes import Succeeded
from tests.support.slot import WORKER_ID, Slot


class MutedError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")

    __repr__ = __str__


class SpoilsItself(Exception):  # noqa: N818
    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise KeyError("notes")


RAISED = [
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    StopIteration("stopped"),
    StopAsyncIteration(),
    RecursionError("too deep"),
    MemoryError(),
    asyncio.CancelledError(),
    ExceptionGroup("several", [ValueError("one"), TypeError("two")]),
    BaseExceptionGroup("several", [SystemExit(1)]),
    MutedError(),
    SpoilsItself(),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_whatever_a_task_raises__fails_that_job_under_its_name(slot: Slot, error: BaseException) -> None:
    def breaks(payload: Any) -> None:
        raise error

    assert type(error).__name__ in slot.failure(breaks).error
    assert isinstance(slot.run(lambda payload: None), Succeeded)


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_whatever_a_coroutine_raises__fails_that_job_under_its_name(slot: Slot, error: BaseException) -> None:
    async def breaks(payload: Any) -> None:
        raise error

    async def works(payload: Any) -> None:
        await asyncio.sleep(0)

    assert type(error).__name__ in slot.failure(breaks).error
    assert isinstance(slot.run(works), Succeeded)


def test_recursion_without_end__fails_the_job(slot: Slot) -> None:
    def dives(payload: Any) -> None:
        dives(payload)

    assert slot.failure(dives).error.startswith("RecursionError: maximum recursion depth exceeded")


def test_bug_of_the_worker__fails_the_job_and_not_the_slot(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr("django_graphile_worker.worker.django_connections.begin", broken)
    assert "AssertionError: a bug" in slot.failure(lambda payload: None).error


def test_no_memory_for_the_error__still_fails_the_job(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(payload: Any) -> None:
        raise ValueError("boom")

    def no_memory(*args: Any, **kwargs: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("django_graphile_worker.worker.execution.retry.failed", no_memory)
    assert slot.failure(breaks).error == "The worker could not run it: MemoryError"
    assert isinstance(slot.run(lambda payload: None), Succeeded)


def test_context__ends_with_the_job(slot: Slot) -> None:
    variable = contextvars.ContextVar("variable", default="clean")
    seen: list[Any] = []

    def activates(payload: Any) -> None:
        variable.set("dirty")
        translation.activate("de")
        timezone.activate("Asia/Tokyo")

    def looks(payload: Any) -> None:
        seen.append((variable.get(), translation.get_language(), timezone.get_current_timezone_name()))

    slot.run(looks)
    slot.run(activates)
    slot.run(looks)
    assert seen[0] == seen[1]
    assert seen[0][0] == "clean"


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_failed_task_held__is_freed_at_once(slot: Slot, is_async: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Records go to a usual handler alone: pytest's handler keeps every record, and so the traceback.
    logger = logging.getLogger("django_graphile_worker.jobs")
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(written := io.StringIO())])
    held: list[weakref.ref[Any]] = []

    def breaks(payload: Any) -> None:
        large = threading.Event()
        held.append(weakref.ref(large))
        raise ValueError("boom")

    async def breaks_later(payload: Any) -> None:
        breaks(payload)

    gc.disable()
    try:
        slot.failure(breaks_later if is_async else breaks)
        slot.call(lambda: None)
        assert held[0]() is None
    finally:
        gc.enable()
    assert "Traceback" in written.getvalue()


def test_running__returns_what_runs_and_since_when(slot: Slot) -> None:
    started, finish = threading.Event(), threading.Event()

    def waits(payload: Any) -> None:
        started.set()
        finish.wait(60)

    future = slot.start(waits, id=42)
    assert started.wait(60)
    (job,) = slot.executor.running()
    finish.set()
    future.result(60)
    assert (job.claim.id, job.task_identifier) == (42, "a_task")
    assert abs(job.started_at - time.time()) < 60
    assert slot.executor.running() == []


NAMES = ["job_started", "job_succeeded", "job_failed", "job_permanently_failed", "job_interrupted"]


class Recorder:
    """Keeps the arguments of signals."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def receiver_for(self, name: str) -> Callable[..., None]:
        return lambda **arguments: self.events.append((name, arguments))


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    for name in NAMES:
        getattr(signals, name).connect(recorder.receiver_for(name), weak=False, dispatch_uid="recorder")
    yield recorder
    for name in NAMES:
        getattr(signals, name).disconnect(dispatch_uid="recorder")


def test_signals__report_a_success(slot: Slot, recorder: Recorder) -> None:
    slot.run(lambda payload: None, '{"a": 1}', id=7)
    assert [name for name, _ in recorder.events] == ["job_started", "job_succeeded"]
    for _, arguments in recorder.events:
        assert arguments["worker_id"] == WORKER_ID
        assert (arguments["job"].id, arguments["job"].payload) == (7, {"a": 1})
    assert recorder.events[1][1]["duration"] >= 0


def test_signals__report_a_failure_and_the_next_attempt(slot: Slot, recorder: Recorder) -> None:
    error = ValueError("boom")

    def breaks(payload: Any) -> None:
        raise error

    slot.run(breaks, attempts=2)
    name, arguments = recorder.events[1]
    assert name == "job_failed"
    assert arguments["error"] is error
    assert arguments["retry_in"] == pytest.approx(7.389, abs=0.001)


def test_signals__carry_the_text_of_a_payload_that_cannot_be_read(slot: Slot, recorder: Recorder) -> None:
    slot.run(lambda payload: None, "9" * 5000)
    assert all(type(arguments["job"].payload) is RawPayload for _, arguments in recorder.events)


@pytest.mark.parametrize("error", [ValueError(), SystemExit()])
def test_receiver_that_raises__does_not_fail_the_job(slot: Slot, error: BaseException) -> None:
    def receiver(**arguments: Any) -> None:
        raise error

    for signal in (signals.job_started, signals.job_succeeded):
        signal.connect(receiver)
    try:
        assert isinstance(slot.run(lambda payload: None), Succeeded)
    finally:
        for signal in (signals.job_started, signals.job_succeeded):
            signal.disconnect(receiver)
