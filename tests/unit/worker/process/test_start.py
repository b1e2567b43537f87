"""start(): what a plan becomes, and how its process ends."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from django_graphile_worker.worker.process import reloader, worker_process
from django_graphile_worker.worker.process import start as starting
from django_graphile_worker.worker.process.plan import RELOADER_PIPE, Plan
from django_graphile_worker.worker.process.start import start
from django_graphile_worker.worker.stop_request import WorkerStop


class Calls:
    """What start() has called, and a worker that ends as the test wants."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.complaints: list[str] = []
        # How many signals the worker gets.
        self.signals = 0
        self.error: Exception | None = None

    def __call__(self, name: str, request: WorkerStop | None = None) -> int:
        self.names.append(name)
        if request is not None:
            for _ in range(self.signals):
                request.handle_signal(signal.SIGTERM, None)
        if self.error:
            raise self.error
        return 5

    def start(self, plan: Plan, *, owns_process: bool = True) -> int:
        return start(plan, say=print, complain=self.complaints.append, owns_process=owns_process)


@pytest.fixture(autouse=True)
def former_default() -> Iterator[None]:
    """The garbage collector of Python 3.11, whatever the version."""
    thresholds = gc.get_threshold()
    gc.set_threshold(700)
    yield
    gc.set_threshold(*thresholds)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    monkeypatch.setattr(starting, "prepare", lambda plan, say: [])
    monkeypatch.setattr(starting, "run_alone", lambda plan, runners, request: calls("alone", request))
    monkeypatch.setattr(starting, "run_children", lambda plan, request: calls("children", request))
    monkeypatch.setattr(reloader, "keep_running", lambda say: calls("keep running"))
    monkeypatch.setattr(worker_process, "leave", lambda code: calls.names.append(f"leave {code}"))
    monkeypatch.setattr(worker_process, "end_in_time", lambda code: calls.names.append(f"end in time {code}"))
    return calls


@pytest.mark.parametrize(
    ("plan", "called"),
    [
        (Plan(), "alone"),
        (Plan(once=True), "alone"),
        (Plan(overrides={"processes": 2}), "children"),
        (Plan(overrides={"processes": 2}, once=True), "children"),
        (Plan(reload=True), "keep running"),
    ],
)
def test_start__runs_what_the_plan_asks_for_and_returns_its_exit_code(calls: Calls, plan: Plan, called: str) -> None:
    assert calls.start(plan) == 5
    assert calls.names == [called]


def test_start__under_reload_runs_the_worker_in_the_process_that_is_watched(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def watched(request: reloader.WatchedRequest, *, with_code: bool) -> Iterator[None]:
        calls.names.append("watched")
        yield
        monkeypatch.setattr(type(request), "is_for_change", True)

    monkeypatch.setenv(RELOADER_PIPE, "3")
    monkeypatch.setattr(reloader, "watched", watched)
    calls.signals = 2
    calls.start(Plan(reload=True))
    assert calls.names[:3] == ["watched", "alone", f"leave {reloader.CHANGED}"]
