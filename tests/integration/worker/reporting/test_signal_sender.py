"""Receivers of signals that use the database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections

from django_graphile_worker import (
    Worker,
    add_job,
    run_once,
    signals,
)
from tests.conftest import RawConnection
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db(transaction=True)


def note(payload: Any) -> None:
    if payload == "fail":
        raise ValueError("as asked")


@pytest.fixture(autouse=True)
def note_is_the_only_task() -> Iterator[None]:
    with own_tasks(note):
        yield


@pytest.fixture
def persistent_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "CONN_MAX_AGE", None)


class Backends:
    """A receiver that uses the ORM, and remembers by which connection."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.has_heard = threading.Semaphore(0)

    def hear(self, **arguments: Any) -> None:
        try:
            with connections["default"].cursor() as cursor:
                cursor.execute("select pg_backend_pid()")
                self.pids.append(cursor.fetchone()[0])
        finally:
            self.has_heard.release()


@pytest.fixture
def backends() -> Iterator[Backends]:
    backends = Backends()
    signals.job_released.connect(backends.hear)
    yield backends
    signals.job_released.disconnect(backends.hear)


@pytest.mark.usefixtures("persistent_connections")
def test_receivers_connection__ends_with_the_worker(
    backends: Backends, raw_connection: Callable[..., RawConnection], wait_until: Callable[..., None]
) -> None:
    add_job("note")
    run_once()
    (pid,) = backends.pids
    left = raw_connection()
    # The server needs a moment to notice.
    wait_until(lambda: not left.execute("select from pg_stat_activity where pid = %s", [pid]).fetchall())


@pytest.mark.usefixtures("persistent_connections")
def test_receivers_connection__that_the_server_ended_is_replaced_before_it_is_used(
    backends: Backends, raw_connection: Callable[..., RawConnection]
) -> None:
    with Worker(concurrency=1):
        add_job("note")
        assert backends.has_heard.acquire(timeout=60)
        # Answers when the process is gone, so its goodbye is on the way.
        raw_connection().execute("select pg_terminate_backend(%s, 60000)", [backends.pids[0]])
        add_job("note")
        assert backends.has_heard.acquire(timeout=60)
    assert len(set(backends.pids)) == 2
