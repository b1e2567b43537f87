"""The watchdog: a deadline for every statement of the worker."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from django_graphile_worker.worker.database import watchdog as watchdog_module
from django_graphile_worker.worker.database.watchdog import Watchdog, watchdog
from tests.conftest import WAIT_TIMEOUT


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


class Connection:
    """Records what the watchdog does to it. ``during`` is called while the watchdog does it."""

    def __init__(self, record: list[str], during: Callable[[], object] = lambda: None) -> None:
        self._record = record
        self._during = during

    def cancel_safe(self, timeout: float) -> None:
        self._during()
        self._record.append("cancel")

    @property
    def pgconn(self) -> Any:
        self._during()
        self._record.append("cut")
        raise OSError("no socket")

    def close(self) -> None:
        self._record.append("close")


def test_a_statement_that_was_cut_ends_while_others_are_being_cancelled() -> None:
    """A server that does not answer keeps each request to cancel for seconds, and the lease would expire meanwhile."""
    record: list[str] = []

    def end_first() -> None:
        thread = threading.Thread(target=dog.end, args=(first,))
        thread.start()
        thread.join(WAIT_TIMEOUT)
        assert not thread.is_alive()

    now = 0.0
    dog = Watchdog(lambda: now)
    first = dog.begin(Connection(record), 1.0, cuts_at_once=True)
    second = dog.begin(Connection(record, during=end_first), 1.0)
    now = 2.0
    dog.check_deadlines()
    assert record == ["cut", "close", "cancel"]
    dog.end(second)


def test_a_statement_that_ends_while_it_is_cut_waits_for_that() -> None:
    record: list[str] = []
    has_ended = threading.Event()

    def end() -> None:
        dog.end(token)
        has_ended.set()

    def begin_to_end() -> None:
        thread.start()
        assert not has_ended.wait(0.2), "the next statement of the connection would have begun, and would be cut"

    now = 0.0
    dog = Watchdog(lambda: now)
    thread = threading.Thread(target=end)
    token = dog.begin(Connection(record, during=begin_to_end), 1.0, cuts_at_once=True)
    now = 2.0
    dog.check_deadlines()
    thread.join(WAIT_TIMEOUT)
    assert record == ["cut", "close"]
