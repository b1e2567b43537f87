"""The connections of a thread around its jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker.worker.outcomes import Succeeded
from tests.conftest import RawConnection
from tests.support.backends import Pids, execute
from tests.support.slot import Slot

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("error_class", [ValueError, SystemExit])
def test_error_of_the_task__comes_first_and_the_leftover_is_added(slot: Slot, error_class: type[BaseException]) -> None:
    def both(payload: Any) -> None:
        execute("begin")
        raise error_class("boom")

    error = slot.failure(both).error
    assert error.startswith(f"{error_class.__name__}: boom")
    assert "The task also left database 'default': a transaction open" in error


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_leftover_on_another_database__is_seen(slot: Slot) -> None:
    assert "database 'other': a transaction open" in slot.failure(lambda payload: execute("begin", "other")).error


@pytest.mark.usefixtures("persistent")
@pytest.mark.parametrize("moment", ["begin", "end"])
def test_connection_that_cannot_be_checked__is_closed_and_fails_no_job(
    slot: Slot, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def broken(self: Any) -> None:
        raise RuntimeError("no answer")

    pids = Pids()
    slot.run(pids)
    with monkeypatch.context() as patch:
        patch.setattr(
            f"django_graphile_worker.worker.django_connections.watched_connection.WatchedConnection.{moment}", broken
        )
        assert isinstance(slot.run(lambda payload: None), Succeeded)
    slot.run(pids)
    assert pids.seen[0] != pids.seen[1]


@pytest.mark.usefixtures("persistent")
def test_thread_that_ends__closes_its_connections(
    slot: Slot, raw_connection: Callable[..., RawConnection], wait_until: Callable[..., None]
) -> None:
    pids = Pids()
    slot.run(pids)
    slot.call(slot.executor.thread_finished)
    observer = raw_connection()
    wait_until(lambda: not observer.execute("select 1 from pg_stat_activity where pid = %s", pids.seen).fetchone())
    assert slot.call(lambda: len(connection.execute_wrappers)) == 0


def test_job_without_queries__opens_no_connection(slot: Slot) -> None:
    slot.run(lambda payload: None)
    assert slot.call(lambda: connection.connection) is None


@pytest.mark.usefixtures("persistent")
def test_job_with_a_usual_query__costs_no_other_query(slot: Slot, raw_connection: Callable[..., RawConnection]) -> None:
    pids = Pids()
    for _ in range(3):
        slot.run(pids)
    (statement,) = (
        raw_connection().execute("select query from pg_stat_activity where pid = %s", pids.seen[:1]).fetchall()
    )
    assert statement == ("select pg_backend_pid()",)
