"""The steps that stop a run, on real threads and without a database."""

from __future__ import annotations

import asyncio
import builtins
import importlib
import logging
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from django.db import connections
from django.db.backends.postgresql.base import DatabaseWrapper

from django_graphile_worker import signals
from django_graphile_worker.exceptions import PermanentFailure, RetryLater
from django_graphile_worker.worker.control import run_stops
from django_graphile_worker.worker.control.position import Position, position_of
from django_graphile_worker.worker.control.run_stops import RunStopper
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.execution.job_run import ActiveRunStop, JobRun
from django_graphile_worker.worker.outcomes import (
    EndedWithoutThread,
    Failed,
    Interrupted,
    Outcome,
    RunStop,
    Succeeded,
)
from tests.conftest import WAIT_TIMEOUT
from tests.support.slot import Slot, open_slot

TIMEOUT = RunStop(kind="timeout", reason="the task ran longer than its time limit of 1 s")

Wait = Callable[..., None]


@pytest.fixture
def slot() -> Iterator[Slot]:
    with open_slot() as slot:
        yield slot


class Stopping:
    """The worker of a stopper: an executor with one thread."""

    def __init__(self, slot: Slot) -> None:
        self.executor = slot.executor
        self.settings = SimpleNamespace(stop_grace=WAIT_TIMEOUT)
        self.left: list[Outcome] = []

    def run_ended_without_thread(self, run: JobRun, thread_id: int) -> None:
        self.left.append(self.executor.end_without_thread(run))

    def stop(self, run: JobRun, stop: RunStop = TIMEOUT, *, grace: float = WAIT_TIMEOUT) -> None:
        """Stop a run on this thread."""
        run.stopping = ActiveRunStop(stop)
        run.is_marked = True
        self.settings.stop_grace = grace
        RunStopper(cast("DatabaseWorker", self), run, run.stopping).stop()


class Endless:
    """A task that runs until it is stopped, and that tells when it has begun."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()

    def __call__(self, payload: Any) -> None:
        self.has_begun.set()
        while True:
            try:
                threading.Event().wait(0.001)
                raise ValueError("tried again for ever")
            except Exception:
                continue


class Importing:
    """A task that imports a module, which takes until ``may_end`` is set, and then runs until it is stopped."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_begun, self.may_end, self.has_imported = threading.Event(), threading.Event(), threading.Event()
        (folder / "slow_module.py").write_text(
            "from builtins import slow_import as task\n"
            "task.has_begun.set()\n"
            "while not task.may_end.wait(0.001):\n"
            "    pass\n"
        )
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "slow_module", raising=False)
        monkeypatch.setattr(builtins, "slow_import", self, raising=False)

    def __call__(self, payload: Any) -> None:
        importlib.import_module("slow_module")
        self.has_imported.set()
        while True:
            threading.Event().wait(0.001)


def begun(slot: Slot, has_begun: threading.Event) -> JobRun:
    assert has_begun.wait(WAIT_TIMEOUT)
    (run,) = slot.executor.runs()
    return run


def test_a_task_that_catches_every_exception__is_stopped(slot: Slot) -> None:
    task = Endless()
    future = slot.start(task)
    worker = Stopping(slot)
    worker.stop(begun(slot, task.has_begun))
    outcome = future.result(WAIT_TIMEOUT)
    assert isinstance(outcome, Failed)
    assert outcome.exception_class == "django_graphile_worker.exceptions.TaskTimeout"
    first, *rest = outcome.error.splitlines()
    assert first == f"django_graphile_worker.exceptions.TaskTimeout: {TIMEOUT.reason}"
    assert "At the deadline the task was here:" in rest
    assert "in __call__" in outcome.error
    assert (outcome.permanent, outcome.delay, worker.left) == (False, None, [])


@pytest.mark.parametrize(
    ("reaction", "expected"),
    [
        (None, Succeeded),
        (RetryLater(0), Failed),
        (PermanentFailure("it makes no sense any more"), Failed),
        (ValueError("interrupted work"), Failed),
    ],
)
def test_a_task_that_reacts_to_the_request__decides_how_it_ends(
    slot: Slot, reaction: Exception | None, expected: type[Outcome]
) -> None:
    has_begun = threading.Event()

    def obedient(payload: Any, helpers: Any) -> None:
        has_begun.set()
        helpers.abort.wait(WAIT_TIMEOUT)
        if reaction is not None:
            raise reaction

    future = slot.start(obedient)
    run = begun(slot, has_begun)
    run.stopping = ActiveRunStop(TIMEOUT)
    run.is_marked = True
    # Only the request, so that no exception follows.
    slot.executor.aborts.set_for(run)
    outcome = future.result(WAIT_TIMEOUT)
    assert isinstance(outcome, expected)
    assert not isinstance(outcome, Interrupted), "a timeout counts as an attempt"
    if isinstance(outcome, Failed):
        is_own = isinstance(reaction, RetryLater | PermanentFailure)
        assert outcome.error.startswith("django_graphile_worker.exceptions.TaskTimeout") is not is_own
        assert outcome.permanent is isinstance(reaction, PermanentFailure)
        assert str(reaction) in outcome.error


def test_a_coroutine_that_blocks_the_event_loop__is_left_behind_and_cancelled_later(slot: Slot) -> None:
    has_begun, may_go_on, ended = threading.Event(), threading.Event(), threading.Event()

    async def blocks(payload: Any) -> None:
        has_begun.set()
        may_go_on.wait(WAIT_TIMEOUT)
        try:
            await asyncio.sleep(WAIT_TIMEOUT)
        except asyncio.CancelledError:
            ended.set()
            raise

    future = slot.start(blocks)
    worker = Stopping(slot)
    worker.stop(begun(slot, has_begun), grace=0.1)
    assert isinstance(worker.left[0], Failed)
    assert "may_go_on.wait" in worker.left[0].error
    assert slot.executor.event_loop.is_blocked
    with pytest.raises(EndedWithoutThread):
        future.result(WAIT_TIMEOUT)
    may_go_on.set()
    assert ended.wait(WAIT_TIMEOUT)


def test_a_coroutine_that_starts__is_not_left_running(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    is_begun, may_return, ended = threading.Event(), threading.Event(), threading.Event()
    call = asyncio.SelectorEventLoop.call_soon_threadsafe

    def slow_call(loop: asyncio.SelectorEventLoop, *arguments: Any) -> asyncio.Handle:
        handle = call(loop, *arguments)
        # The thread of the slot is interrupted here, if it may be.
        while threading.current_thread().name.startswith("slot") and not may_return.wait(0.001):
            pass
        return handle

    async def waits(payload: Any) -> None:
        is_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(asyncio.SelectorEventLoop, "call_soon_threadsafe", slow_call)
    future = slot.start(waits)
    thread = threading.Thread(target=Stopping(slot).stop, args=(begun(slot, is_begun),))
    thread.start()
    # Some steps of the stopper.
    thread.join(5 * run_stops.STEP_INTERVAL)
    assert not future.done(), "the coroutine still runs"
    may_return.set()
    outcome = future.result(WAIT_TIMEOUT)
    assert isinstance(outcome, Failed)
    assert ended.is_set()
    thread.join(WAIT_TIMEOUT)


def test_exception__is_not_raised_where_a_lock_of_the_process_may_be_held(
    slot: Slot, wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, may_go_on, looks = threading.Event(), threading.Event(), []

    def is_safe(position: Position) -> bool:
        looks.append(position)
        return False

    def spins(payload: Any) -> None:
        has_begun.set()
        while not may_go_on.is_set():
            pass

    monkeypatch.setattr(run_stops, "is_safe", is_safe)
    future = slot.start(spins)
    thread = threading.Thread(target=Stopping(slot).stop, args=(begun(slot, has_begun),))
    thread.start()
    wait_until(lambda: len(looks) > 2)
    may_go_on.set()
    assert isinstance(future.result(WAIT_TIMEOUT), Succeeded), "the task ended before the stop reached it"
    thread.join(WAIT_TIMEOUT)


@pytest.mark.parametrize(
    ("module", "is_safe"),
    [
        (logging.__file__, False),
        ("<frozen importlib._bootstrap>", False),
        (run_stops.__file__, False),
        (__file__, True),
    ],
)
def test_places__where_an_exception_could_leave_a_lock_locked(module: str, is_safe: bool) -> None:
    frame: Any = SimpleNamespace(f_code=SimpleNamespace(co_filename=module))
    assert run_stops.is_safe(Position(1, frame)) is is_safe


def test_import__ends_before_the_task_is_interrupted(
    slot: Slot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that is interrupted may leave its file open."""
    task = Importing(tmp_path, monkeypatch)
    future = slot.start(task)
    thread = threading.Thread(target=Stopping(slot).stop, args=(begun(slot, task.has_begun),))
    thread.start()
    # Some steps of the stopper.
    thread.join(5 * run_stops.STEP_INTERVAL)
    assert not future.done()
    task.may_end.set()
    assert isinstance(future.result(WAIT_TIMEOUT), Failed)
    assert task.has_imported.is_set()
    thread.join(WAIT_TIMEOUT)


def test_import_that_does_not_end__is_interrupted_before_the_end_of_the_grace(
    slot: Slot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Importing(tmp_path, monkeypatch)
    future = slot.start(task)
    worker = Stopping(slot)
    worker.stop(begun(slot, task.has_begun), grace=4.0)
    assert isinstance(future.result(WAIT_TIMEOUT), Failed)
    assert worker.left == []
    assert not task.has_imported.is_set()


def test_connect__ends_before_the_task_is_interrupted(slot: Slot) -> None:
    """A connect that is interrupted may leave its session open."""
    has_begun, has_failed = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        entry = {**connections.settings["default"], "HOST": "127.0.0.1", "PORT": server.getsockname()[1]}

        def connects(payload: Any) -> None:
            has_begun.set()
            try:
                DatabaseWrapper(entry, "elsewhere").connect()
            except psycopg.OperationalError:
                has_failed.set()
                raise

        future = slot.start(connects)
        run = begun(slot, has_begun)
        client, _ = server.accept()
        thread = threading.Thread(target=Stopping(slot).stop, args=(run,))
        thread.start()
        # Some steps of the stopper.
        thread.join(5 * run_stops.STEP_INTERVAL)
        is_done = future.done()
        client.close()
    assert not is_done
    assert isinstance(future.result(WAIT_TIMEOUT), Failed)
    assert has_failed.is_set()
    thread.join(WAIT_TIMEOUT)


def test_code_that_runs_after_the_task__is_not_interrupted(slot: Slot, wait_until: Wait) -> None:
    has_begun, may_go_on, errors = threading.Event(), threading.Event(), []

    def receiver(**arguments: Any) -> None:
        has_begun.set()
        try:
            while not may_go_on.is_set():
                threading.Event().wait(0.001)
        except BaseException as error:
            errors.append(error)

    signals.job_succeeded.connect(receiver)
    try:
        future = slot.start(lambda payload: None)
        run = begun(slot, has_begun)
        assert position_of(run) is None
        thread = threading.Thread(target=Stopping(slot).stop, args=(run,), kwargs={"grace": 0.01})
        thread.start()
        wait_until(lambda: run.abort is not None)
        thread.join(5 * run_stops.STEP_INTERVAL)
        may_go_on.set()
        assert isinstance(future.result(WAIT_TIMEOUT), Succeeded)
    finally:
        signals.job_succeeded.disconnect(receiver)
    assert errors == []
    thread.join(WAIT_TIMEOUT)
    assert not thread.is_alive()


def test_exceptions__never_reach_the_next_job_of_the_thread(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop runs at random moments around their end, with steps as close to each other as they get."""
    monkeypatch.setattr(run_stops, "STEP_INTERVAL", 0.0)
    worker, chance = Stopping(slot), random.Random(14)
    outcomes: dict[type[Outcome], int] = {}

    def spins(payload: Any) -> int:
        end = time.perf_counter() + payload["seconds"]
        while time.perf_counter() < end:
            pass
        return 1

    def victim(payload: Any) -> int:
        return sum(range(2000))

    with ThreadPoolExecutor(1) as stoppers:
        for _ in range(100):
            # Some runs end only if they are stopped, most at about the same time as they are stopped.
            seconds = chance.choice([WAIT_TIMEOUT, *[chance.uniform(0.0, 0.002)] * 9])
            future = slot.start(spins, f'{{"seconds": {seconds}}}')
            threading.Event().wait(chance.uniform(0.0, 0.002))
            while seconds > 1.0 and not slot.executor.runs():
                pass
            stopping = [stoppers.submit(worker.stop, run) for run in slot.executor.runs()]
            outcome = future.result(WAIT_TIMEOUT)
            outcomes[type(outcome)] = outcomes.get(type(outcome), 0) + 1
            assert isinstance(outcome, Succeeded | Failed)
            assert not isinstance(outcome, Failed) or "TaskTimeout" in outcome.error
            after = slot.start(victim).result(WAIT_TIMEOUT)
            assert isinstance(after, Succeeded), after
            for stop in stopping:
                stop.result(WAIT_TIMEOUT)
    assert set(outcomes) == {Succeeded, Failed}, "the stops should hit some runs, and miss others"
