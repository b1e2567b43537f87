"""Threads that are started as they are needed, and rest."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from django_graphile_worker.worker.pool.threads import PoolThreads


def test_the_system_allows_no_more_threads__the_existing_ones_do_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = PoolThreads(lambda place: threads.wait_for_call(), most=3)
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
        PoolThreads(lambda place: None, most=3).call(1)


def test_work_that_came_before_the_rest__is_not_missed() -> None:
    threads = PoolThreads(lambda place: None, most=1)
    threads.rest(unless=lambda: True)
    assert threads.resting == 0
