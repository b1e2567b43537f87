"""What a task may do to a worker: nothing."""

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
from django.core.cache import caches
from django.utils import timezone, translation

from django_graphile_worker import signals
from django_graphile_worker.exceptions import PermanentFailure, RetryLater
from django_graphile_worker.jobs import Job
from django_graphile_worker.payloads import RawPayload
from django_graphile_worker.worker.outcomes import Failed, Interrupted, Succeeded
from tests.support.slot import WORKER_ID, Slot, make_claim, make_task


class MutedError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

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


@pytest.mark.parametrize(
    ("payload_text", "reason"),
    [
        ("[" * 100_000 + "]" * 100_000, "RecursionError"),
        ("9" * 5000, "ValueError: Exceeds the limit"),
        ("{not json", "JSONDecodeError"),
        ("", "JSONDecodeError"),
        ("1 2", "JSONDecodeError"),
    ],
    ids=["deep", "long integer", "broken", "empty", "two values"],
)
def test_payload_that_python_cannot_read__fails_its_own_job(slot: Slot, payload_text: str, reason: str) -> None:
    assert reason in slot.failure(lambda payload: None, payload_text).error
    assert isinstance(slot.run(lambda payload: None), Succeeded)


@pytest.mark.parametrize(
    ("payload_text", "payload"),
    [(' {"a": 1}\n', {"a": 1}), ("null", None), ("[1,2]", [1, 2]), ('"\\u0000"', "\x00"), ("1e400", float("inf"))],
)
def test_payload__arrives_decoded(slot: Slot, payload_text: str, payload: Any) -> None:
    got: list[Any] = []
    assert isinstance(slot.run(lambda payload: got.append(payload), payload_text), Succeeded)
    assert got == [payload]


@pytest.mark.parametrize("epoch", [float("inf"), float("-inf"), float("nan"), -1e15, 1e15])
def test_dates_that_python_cannot_hold__do_not_break_the_job(slot: Slot, epoch: float) -> None:
    jobs: list[Job] = []

    def looks(payload: Any, helpers: Any) -> None:
        jobs.append(helpers.job)

    outcome = slot.run(looks, run_at_epoch=epoch, created_at_epoch=epoch, updated_at_epoch=epoch)
    assert isinstance(outcome, Succeeded)
    assert jobs[0].run_at.year in (1, 9999)


def test_flags_that_nobody_can_read__do_not_break_the_job(slot: Slot) -> None:
    flags: list[Any] = []
    outcome = slot.run(lambda payload, helpers: flags.append(helpers.job.flags), flags_text="[" * 100_000)
    assert isinstance(outcome, Succeeded)
    assert flags == [frozenset()]


def test_task_that_is_gone__fails_the_job_with_the_way_out(slot: Slot) -> None:
    outcome = slot.start_claim(make_claim(task_id=999)).result()
    assert isinstance(outcome, Failed)
    assert "UnknownTaskError" in outcome.error
    assert "Restart the worker" in outcome.error


def test_task_with_parameters_that_nothing_fills__fails_the_job(slot: Slot) -> None:
    def greedy(payload: Any, helpers: Any, more: Any) -> None: ...

    assert "nothing would fill 'more'" in slot.failure(greedy).error


def test_mistake_of_the_worker_itself__fails_the_job_and_not_the_slot(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr("django_graphile_worker.worker.connections.lifecycle.begin", broken)
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


def test_cache_backends__are_kept_from_job_to_job(slot: Slot) -> None:
    backends: list[Any] = []
    for _ in range(2):
        slot.run(lambda payload: backends.append(caches["default"]))
    assert backends[0] is backends[1]


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_failed_task_held__is_let_go_at_once(
    slot: Slot, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Written by a handler as they are outside of tests; pytest's own keeps every record, and so the traceback.
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


def test_retry_later__sets_the_delay(slot: Slot) -> None:
    def later(payload: Any) -> None:
        raise RetryLater(90, "rate limited")

    outcome = slot.failure(later)
    assert (outcome.delay, outcome.permanent) == (90.0, False)
    assert "rate limited" in outcome.error


def test_permanent_failure__leaves_no_attempt(slot: Slot) -> None:
    def never(payload: Any) -> None:
        raise PermanentFailure("no such customer")

    outcome = slot.failure(never)
    assert outcome.permanent
    assert "no such customer" in outcome.error


def test_duration__is_the_time_on_the_slot(slot: Slot) -> None:
    outcome = slot.run(lambda payload: threading.Event().wait(0.02))
    assert 0.02 <= outcome.duration < 60


def test_running__tells_what_runs_and_since_when(slot: Slot) -> None:
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


def test_abort__is_seen_by_running_and_by_future_jobs(slot: Slot) -> None:
    started = threading.Event()

    def waits(payload: Any, helpers: Any) -> None:
        started.set()
        if not helpers.abort.wait(60):
            raise TimeoutError

    async def awaits(payload: Any, helpers: Any) -> None:
        await asyncio.wait_for(helpers.abort, 10)

    future = slot.start(waits)
    assert started.wait(60)
    slot.executor.abort()
    assert isinstance(future.result(60), Succeeded)
    assert isinstance(slot.run(waits), Succeeded)
    assert isinstance(slot.run(awaits), Succeeded)


def test_abort__is_one_for_each_run_and_made_only_when_asked_for(slot: Slot) -> None:
    aborts: list[Any] = []

    def looks(payload: Any, helpers: Any) -> None:
        assert helpers.abort is helpers.abort
        aborts.append(helpers.abort)

    def looks_not(payload: Any, helpers: Any) -> None: ...

    slot.run(looks)
    slot.run(looks)
    slot.run(looks_not)
    first, second = aborts
    assert first is not second
    assert len(slot.executor._aborts._made) == 2
    first.set()
    assert not second.is_set()
    # Also what a task has left running is told.
    slot.executor.abort()
    assert second.is_set()
    del first, second, aborts[:]
    assert len(slot.executor._aborts._made) == 0, "nothing is kept of runs that are over"


def test_run_that_is_told_to_stop_alone__makes_way_without_costing_an_attempt(slot: Slot) -> None:
    def gives_way(payload: Any, helpers: Any) -> None:
        helpers.abort.set()
        raise RetryLater(0)

    def is_not_told(payload: Any) -> None:
        raise RetryLater(0)

    assert isinstance(slot.run(gives_way), Interrupted)
    assert slot.failure(is_not_told).delay == 0


@pytest.mark.parametrize("result", [None, 0, {"sum": 5}, [1, 2]])
def test_outcome__keeps_what_the_task_returned(slot: Slot, result: Any) -> None:
    async def later(payload: Any) -> Any:
        return result

    for function in (lambda payload: result, lambda payload, helpers: result, later):
        outcome = slot.run(function)
        assert isinstance(outcome, Succeeded)
        assert outcome.result is result


def test_result__is_not_kept_by_the_worker(slot: Slot) -> None:
    class Large:
        """Anything that can be weakly referred to."""

    made: list[weakref.ref[Large]] = []

    def makes(payload: Any) -> Large:
        large = Large()
        made.append(weakref.ref(large))
        return large

    outcome = slot.run(makes)
    assert made[0]() is not None
    del outcome
    slot.run(lambda payload: None)
    assert made[0]() is None


def test_retry_at_once_while_the_worker_stops__costs_no_attempt(slot: Slot) -> None:
    def gives_way(payload: Any) -> None:
        raise RetryLater(payload)

    async def gives_way_too(payload: Any) -> None:
        raise RetryLater(payload)

    assert slot.failure(gives_way, "0").delay == 0
    slot.executor.abort()
    assert isinstance(slot.run(gives_way, "0"), Interrupted)
    assert isinstance(slot.run(gives_way_too, "0"), Interrupted)
    assert slot.failure(gives_way, "60").delay == 60


def test_abort__wakes_a_coroutine_that_awaits_it(slot: Slot) -> None:
    started = threading.Event()

    async def awaits(payload: Any, helpers: Any) -> None:
        waiting = asyncio.ensure_future(helpers.abort)
        await asyncio.sleep(0)
        started.set()
        assert await asyncio.wait_for(waiting, 10)

    future = slot.start(awaits)
    assert started.wait(60)
    slot.executor.abort()
    assert isinstance(future.result(60), Succeeded)


def test_cancel__starts_nothing_more(slot: Slot) -> None:
    started: list[Any] = []
    slot.executor.cancel()
    assert isinstance(slot.run(lambda payload: started.append(payload)), Interrupted)
    assert started == []


NAMES = ["job_started", "job_succeeded", "job_failed", "job_permanently_failed", "job_interrupted"]


class Recorder:
    """Remembers what the signals said."""

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


def test_signals__tell_a_success(slot: Slot, recorder: Recorder) -> None:
    slot.run(lambda payload: None, '{"a": 1}', id=7)
    assert [name for name, _ in recorder.events] == ["job_started", "job_succeeded"]
    for _, arguments in recorder.events:
        assert arguments["worker_id"] == WORKER_ID
        assert (arguments["job"].id, arguments["job"].payload) == (7, {"a": 1})
    assert recorder.events[1][1]["duration"] >= 0


def test_signals__tell_a_failure_and_the_next_try(slot: Slot, recorder: Recorder) -> None:
    error = ValueError("boom")

    def breaks(payload: Any) -> None:
        raise error

    slot.run(breaks, attempts=2)
    name, arguments = recorder.events[1]
    assert name == "job_failed"
    assert arguments["error"] is error
    assert arguments["retry_in"] == pytest.approx(7.389, abs=0.001)


def test_signals__tell_the_last_failure(slot: Slot, recorder: Recorder) -> None:
    def breaks(payload: Any) -> None:
        raise ValueError

    slot.run(breaks, attempts=25)
    assert recorder.events[1][0] == "job_permanently_failed"


def test_signals__carry_the_text_of_a_payload_that_cannot_be_read(slot: Slot, recorder: Recorder) -> None:
    slot.run(lambda payload: None, "9" * 5000)
    assert all(type(arguments["job"].payload) is RawPayload for _, arguments in recorder.events)


@pytest.mark.parametrize("error", [ValueError(), SystemExit()])
def test_receiver_that_raises__harms_nobody(slot: Slot, error: BaseException) -> None:
    def receiver(**arguments: Any) -> None:
        raise error

    for signal in (signals.job_started, signals.job_succeeded):
        signal.connect(receiver)
    try:
        assert isinstance(slot.run(lambda payload: None), Succeeded)
    finally:
        for signal in (signals.job_started, signals.job_succeeded):
            signal.disconnect(receiver)


def test_job__is_not_built_when_nobody_looks(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(self: Any) -> None:
        raise AssertionError("somebody looked")

    monkeypatch.setattr("django_graphile_worker.worker.execution.job_run.JobRun._build_job", build)
    assert isinstance(slot.run(lambda payload: None), Succeeded)
    assert isinstance(slot.run(lambda payload, helpers: None), Succeeded)


def test_function_that_returns_a_coroutine__is_awaited(slot: Slot) -> None:
    done: list[Any] = []

    async def inner() -> None:
        done.append(True)

    assert isinstance(slot.run(lambda payload: inner()), Succeeded)
    assert done == [True]


def test_coroutine_inside_a_coroutine__is_awaited_too(slot: Slot) -> None:
    done: list[Any] = []

    async def innermost() -> None:
        done.append(True)

    async def inner() -> Any:
        return innermost()

    async def outer(payload: Any) -> Any:
        return inner()

    assert isinstance(slot.run(outer), Succeeded)
    assert done == [True]


def test_function_that_returns_a_generator__fails_as_nothing_of_it_has_run(slot: Slot) -> None:
    def generator() -> Any:
        yield

    async def async_generator() -> Any:
        yield

    async def forgetful(payload: Any) -> Any:
        return async_generator()

    for function in (
        lambda payload: generator(),
        lambda payload, helpers: async_generator(),
        lambda payload: [generator()],
        forgetful,
    ):
        error = slot.failure(function, "[1]").error.splitlines()[0]
        assert error.endswith(
            "InvalidTypeError: expected a_task to return when it is done, got a generator: nothing of its body has "
            "run. Loop over it inside the task."
        )


def test_backoff__is_asked_with_attempts_and_error(slot: Slot) -> None:
    asked: list[Any] = []

    def backoff(attempts: int, error: BaseException) -> float:
        asked.append((attempts, error))
        return 5 * attempts

    error = ValueError()

    def breaks(payload: Any) -> None:
        raise error

    assert slot.failure(make_task(breaks, backoff=backoff), attempts=3).delay == 15.0
    assert asked == [(3, error)]
