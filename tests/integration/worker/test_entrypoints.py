"""Workers that are started by code: run_worker(), run_once() and Worker."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from django_graphile_worker import (
    GraphileWorkerError,
    StopRequest,
    Worker,
    add_job,
    run_once,
    run_worker,
    signals,
    task,
)
from django_graphile_worker.models import Job
from django_graphile_worker.worker import shutdown
from django_graphile_worker.worker.execution.event_loop import EventLoop
from django_graphile_worker.worker.fetching import scan
from django_graphile_worker.worker.fetching.claimable import TaskDirectory
from django_graphile_worker.worker.fetching.claimer import FastPath
from tests.support.factories import make_job, minutes_ago
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db(transaction=True)


def note(payload: Any) -> None:
    if payload == "fail":
        raise ValueError("as asked")


@pytest.fixture(autouse=True)
def note_is_the_only_task() -> Iterator[None]:
    with own_tasks(note):
        yield


def _open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_run_once__leaves_no_file_open() -> None:
    run_once()
    gc.collect()
    before = _open_files()
    run_once()
    assert _open_files() <= before


@pytest.mark.parametrize("run", [run_once, run_worker])
def test_stop__of_another_kind_is_refused_with_the_way_out(run: Any) -> None:
    with pytest.raises(TypeError, match=r"stop: expected a StopRequest, got <threading\.Event.*StopRequest\(\)"):
        run(stop=threading.Event())


@pytest.mark.parametrize("make", [run_once, run_worker, Worker])
@pytest.mark.parametrize(
    ("databases", "expected"),
    [
        (
            "default",
            r"databases: expected a list of database aliases, got 'default'\. Write a single alias as a list, too",
        ),
        (["nope"], r"databases: expected an alias of settings\.DATABASES \('default', 'other'\), got 'nope'\."),
        ([None], r"databases: expected a list of database aliases, got \[None\]"),
    ],
)
def test_databases__that_are_none_are_refused_with_the_way_out(make: Any, databases: Any, expected: str) -> None:
    with pytest.raises(GraphileWorkerError, match=expected):
        make(databases=databases)


class Gates:
    """A task that waits, of several databases, and is let go at the end of the test."""

    def __init__(self) -> None:
        self.has_begun = threading.Semaphore(0)
        self.may_end = threading.Event()

    def __call__(self, payload: Any) -> None:
        self.has_begun.release()
        self.may_end.wait(60)

    def wait(self) -> None:
        assert self.has_begun.acquire(timeout=60)


@pytest.fixture
def gate() -> Iterator[Gates]:
    gate = Gates()
    with own_tasks():
        task("wait")(gate)
        yield gate
    gate.may_end.set()


def _worker_threads() -> list[str]:
    # One of the process; those of jobs that nobody can end; one of each handler of a log.
    kept = ("watchdog", "slot", "log")
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("graphile-worker") and not any(word in thread.name for word in kept)
    ]


def test_worker__that_was_stopped_can_be_started_again(gate: Gates) -> None:
    gate.may_end.set()
    worker = Worker(concurrency=1)
    for _ in range(2):
        worker.start()
        add_job("wait")
        gate.wait()
        assert worker.stop() is True
    assert worker.stop() is True, "a second stop has nothing to do"


def test_worker__refuses_a_second_start_and_goes_on(gate: Gates, wait_until: Callable[..., None]) -> None:
    gate.may_end.set()
    with Worker(concurrency=1) as worker:
        threads = len(_worker_threads())
        with pytest.raises(GraphileWorkerError, match=r"the worker runs already\. Call stop\(\) first"):
            worker.start()
        assert len(_worker_threads()) <= threads
        add_job("wait")
        gate.wait()
    # A stop waits for each part for a second, which a busy machine may exceed.
    wait_until(lambda: _worker_threads() == [], timeout=5.0)


def test_worker__that_cannot_start_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any) -> None:
        raise GraphileWorkerError("not today")

    worker = Worker(concurrency=1)
    with monkeypatch.context() as patched, pytest.raises(GraphileWorkerError, match="not today"):
        patched.setattr(TaskDirectory, "review", refuse)
        worker.start()
    assert _worker_threads() == []
    worker.start()
    assert worker.stop() is True


def test_stop__tells_that_a_job_was_cut_off(gate: Gates) -> None:
    worker = Worker(concurrency=1, grace_period=0)
    worker.start()
    job = add_job("wait")
    gate.wait()
    assert worker.stop() is False
    given_back = Job.objects.get(pk=job.id)
    assert (given_back.locked_by, given_back.attempts) == (None, 0)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_stop__stops_all_databases_at_once(gate: Gates) -> None:
    """Each is let go only when both are being stopped."""
    worker = Worker(concurrency=1, databases=["default", "other"], grace_period=60)
    worker.start()
    for alias in ("default", "other"):
        add_job("wait", using=alias)
        gate.wait()
    stopping: list[str] = []

    def note_stopping(worker_id: str, **arguments: Any) -> None:
        stopping.append(worker_id)
        if len(stopping) == 2:
            gate.may_end.set()

    signals.worker_stopping.connect(note_stopping)
    try:
        assert worker.stop() is True
    finally:
        signals.worker_stopping.disconnect(note_stopping)
    assert len(set(stopping)) == 2


class Coroutines:
    """Tasks that do not heed their cancellation, each in its way; they end when the test does."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    async def blocks(self, payload: Any) -> None:
        self.has_begun.set()
        self.may_end.wait(60)

    async def swallows(self, payload: Any) -> None:
        await Job.objects.acount()
        self.has_begun.set()
        while not self.may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)


@pytest.fixture
def coroutines() -> Iterator[Coroutines]:
    coroutines = Coroutines()
    yield coroutines
    coroutines.may_end.set()


def _slot_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("graphile-worker-slot")}


@pytest.mark.parametrize("name", ["blocks", "swallows"])
def test_stop__takes_a_second_more_than_the_grace_period_and_leaves_no_thread_that_waits_for_a_coroutine(
    coroutines: Coroutines, wait_until: Callable[..., None], name: str
) -> None:
    task("stubborn")(getattr(coroutines, name))
    told: list[Any] = []

    def hear(job: Any, **arguments: Any) -> None:
        told.append(job.id)

    others = _slot_threads()
    # Some time more for a slow machine; it was five seconds more, and two and a half.
    limit = shutdown.CLEANUP_TIMEOUT + 2.0
    stops: list[float] = []
    signals.job_interrupted.connect(hear)
    # A machine that pauses is forgiven twice.
    while len(stops) < 3 and min(stops, default=limit) >= limit:
        told.clear()
        coroutines.has_begun.clear()
        job = add_job("stubborn", job_key="stubborn")
        worker = Worker(concurrency=1, grace_period=0)
        worker.start()
        assert coroutines.has_begun.wait(60)
        began = time.monotonic()
        assert worker.stop() is False
        stops.append(time.monotonic() - began)
        wait_until(lambda: _slot_threads() <= others and told)
        given_back = Job.objects.get(pk=job.id)
        assert (given_back.locked_by, given_back.attempts) == (None, 0)
    signals.job_interrupted.disconnect(hear)
    assert min(stops) < limit
    assert told == [job.id], "once, whoever saw it"


def around(get_result: Any) -> Any:
    """Middleware that only async code could be."""

    async def middleware(job: Any) -> Any:
        return await get_result(job)

    return middleware


def test_job_inside_async_middleware__that_ends_in_the_last_second_has_ended(
    gate: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel = EventLoop.cancel

    def cancel_and_let_end(loop: EventLoop) -> None:
        cancel(loop)
        gate.may_end.set()

    monkeypatch.setattr(EventLoop, "cancel", cancel_and_let_end)
    monkeypatch.setattr(shutdown, "CLEANUP_TIMEOUT", 30.0)
    worker = Worker(concurrency=1, grace_period=0, middleware=[f"{__name__}.around"])
    worker.start()
    add_job("wait")
    gate.wait()
    worker.stop()
    assert not Job.objects.exists(), "it was given back, to be run again"


def test_job_inside_async_middleware__that_does_not_end_is_given_back(
    gate: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "CLEANUP_TIMEOUT", 0.2)
    worker = Worker(concurrency=1, grace_period=0, middleware=[f"{__name__}.around"])
    worker.start()
    add_job("wait")
    gate.wait()
    assert worker.stop() is False
    given_back = Job.objects.get()
    assert (given_back.locked_by, given_back.attempts, given_back.last_error) == (None, 0, None)


def test_stop__waits_for_plain_tasks_no_longer_than_the_grace_period(
    gate: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last second is for coroutines, which are told that they are cancelled."""
    monkeypatch.setattr(shutdown, "CLEANUP_TIMEOUT", 1000.0)
    worker = Worker(concurrency=1, grace_period=0)
    worker.start()
    add_job("wait")
    gate.wait()
    assert worker.stop() is False


def test_djangos_connection__is_left_as_it_was() -> None:
    connections["default"].close()
    assert run_once() == 0
    assert connections["default"].connection is None
    connections["default"].ensure_connection()
    before = connections["default"].connection
    assert run_once() == 0
    assert connections["default"].connection is before


def test_worker__says_whether_it_runs_and_shows_no_internals() -> None:
    worker = Worker(concurrency=1)
    with worker:
        was_running = worker.is_running
    assert (was_running, worker.is_running) == (True, False)
    assert [name for name in vars(worker) if not name.startswith("_")] == []
    with StopRequest() as stop:
        public = [name for name in dir(stop) if not name.startswith("_")]
        assert public == ["close", "is_made"]


def test_run_once__runs_a_job_that_came_in_before_the_place_of_the_last_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under a held snapshot: each pass through the backlog counts as slow."""
    monkeypatch.setattr(scan, "QUICK", 0.0)
    monkeypatch.setattr(scan, "REST", 1e9)
    monkeypatch.setattr(FastPath, "is_worth_trying", False)
    ran: list[int] = []

    def late(payload: Any) -> None:
        ran.append(payload["n"])
        if payload["n"] == 1:
            make_job("late", {"n": 2}, run_at=minutes_ago(60))

    with own_tasks(late):
        make_job("late", {"n": 1})
        run_once()
    assert ran == [1, 2]
