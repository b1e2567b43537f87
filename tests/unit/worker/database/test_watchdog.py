"""The watchdog: a deadline for every statement of the worker."""

from __future__ import annotations

import os
from typing import Any

import pytest

from django_graphile_worker.worker.database import watchdog as watchdog_module
from django_graphile_worker.worker.database.watchdog import Watchdog, watchdog


def test_a_child_of_a_fork_has_a_watchdog_of_its_own_and_leaves_the_parents_connections_alone() -> None:
    token = watchdog.begin(object(), 600.0)
    child = os.fork()
    if child == 0:
        was_empty = not watchdog._watched
        watchdog.begin(object(), 600.0)
        is_awake = watchdog._thread is not None and watchdog._thread.is_alive()
        os._exit(0 if was_empty and is_awake else 1)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        watchdog.end(token)


def test_a_watchdog_that_failed_goes_on(monkeypatch: pytest.MonkeyPatch, wait_until: Any) -> None:
    """Without its thread no statement would have a deadline any more."""
    monkeypatch.setattr(watchdog_module, "TICK", 0.01)
    ticks: list[int] = []

    class Failing(Watchdog):
        def check_deadlines(self) -> None:
            ticks.append(1)
            raise RuntimeError("dictionary changed size during iteration")

    failing = Failing()
    failing.begin(object(), 600.0)
    wait_until(lambda: len(ticks) > 2)
    assert failing._thread is not None
    assert failing._thread.is_alive()
    failing.end(0)
    monkeypatch.setattr(Failing, "check_deadlines", lambda self: None)


def test_a_connection_that_is_to_be_cut_at_once_is_not_asked_first() -> None:
    asked: list[str] = []

    class Connection:
        def cancel_safe(self, timeout: float) -> None:
            asked.append("cancel")

        @property
        def pgconn(self) -> Any:
            asked.append("cut")
            raise OSError("no socket")

    now = 0.0
    dog = Watchdog(lambda: now)
    with dog.watch(Connection(), 1.0, cuts_at_once=True), dog.watch(Connection(), 1.0):
        now = 2.0
        dog.check_deadlines()
    assert asked == ["cut", "cancel"]
