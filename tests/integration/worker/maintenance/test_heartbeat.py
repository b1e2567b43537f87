"""The heartbeat, stepped on a real database."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from django_graphile_worker import pause
from django_graphile_worker.sql import control, workers
from django_graphile_worker.worker.database_worker import DatabaseWorker
from tests.conftest import WAIT_TIMEOUT
from tests.support.factories import make_job
from tests.support.stepped_worker import Build, Gate, beat_of, expect_jobs_of, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)

ran: list[Any] = []


def quick(payload: Any) -> None:
    ran.append(payload.get("n"))


def failing(payload: Any) -> None:
    raise ValueError("It does not work")


gate = Gate()


def slow(payload: Any) -> None:
    gate(payload)


@pytest.fixture
def runner() -> Iterator[Build]:
    ran.clear()
    gate.__init__()  # type: ignore[misc]
    with stepped_workers(quick, failing, slow) as make:
        yield make
        gate.may_end.set()


def test_registers_beats_and_leaves(runner: Build, raw_connection: Callable[..., Any], worker_schema: str) -> None:
    connection = raw_connection()

    def registered() -> list[Any]:
        rows = connection.execute(f'select id, metadata from "{worker_schema}"._private_workers'.encode())
        return list(rows.fetchall())

    worker = runner(concurrency=4)
    ((worker_id, metadata),) = registered()
    assert worker_id == worker.worker_id
    assert metadata["concurrency"] == 4
    assert metadata["tasks"] == ["failing", "quick", "slow"]
    assert 0 < worker.heartbeat.step() <= worker.settings.heartbeat_interval
    worker.heartbeat.deregister()
    assert registered() == []


def test_a_worker_that_holds_jobs_does_not_leave(
    runner: Build, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    worker = runner()
    make_job("quick", locked_by=worker.worker_id)
    worker.heartbeat.deregister()
    rows = raw_connection().execute(f'select id from "{worker_schema}"._private_workers'.encode()).fetchall()
    assert rows == [(worker.worker_id,)]


def test_a_forgotten_worker_comes_back_as_another(
    runner: Build, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    worker = runner()
    before = worker.worker_id
    raw_connection().execute(f'delete from "{worker_schema}"._private_workers'.encode())
    worker.heartbeat.step()
    assert worker.worker_id != before
    assert worker.worker_id.startswith(workers.WORKER_PREFIX)
    rows = raw_connection().execute(f'select id from "{worker_schema}"._private_workers'.encode()).fetchall()
    assert rows == [(worker.worker_id,)]


def test_a_forgotten_worker_begins_nothing_that_it_had_claimed(
    runner: Build, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    for _ in range(4):
        make_job("slow")
    worker = runner(concurrency=1)
    expect_jobs_of(0.001, worker)
    worker.fetcher.step()
    assert gate.has_begun.acquire(timeout=WAIT_TIMEOUT)
    assert worker.pool.backlog > 0
    raw_connection().execute(f'delete from "{worker_schema}"._private_workers'.encode())
    # Whatever the fetcher does meanwhile.
    worker.heartbeat.step()
    assert worker.pool.backlog == 0
    gate.may_end.set()
    assert not gate.has_begun.acquire(timeout=0)


def test_a_worker_that_is_in_no_register_claims_nothing(
    runner: Build, monkeypatch: pytest.MonkeyPatch, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    """Its row was deleted by hand, and the database fails just when the worker registers again."""
    worker = runner()
    raw_connection().execute(f'delete from "{worker_schema}"._private_workers'.encode())

    def fail(*arguments: Any, **options: Any) -> None:
        raise psycopg.OperationalError("the server went away")

    with monkeypatch.context() as patch:
        patch.setattr(workers, "register_worker", fail)
        worker.heartbeat.was_called = True
        with pytest.raises(psycopg.OperationalError):
            worker.heartbeat.step()
    assert not worker.heartbeat.holds_lease
    worker.heartbeat.step()
    assert worker.heartbeat.holds_lease


def test_a_beat_that_hangs_is_given_up_while_the_lease_holds(
    runner: Build, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    worker = runner(worker_timeout=20, heartbeat_interval=5)
    assert worker.heartbeat._database.deadline == 5
    worker.heartbeat._database.deadline = 0.3
    site = raw_connection(autocommit=False)
    site.execute(f'select from "{worker_schema}"._private_workers for update'.encode())
    with pytest.raises(psycopg.Error):
        worker.heartbeat.step()
    assert worker.heartbeat.holds_lease
    site.rollback()
    worker.heartbeat._database.deadline = 5
    worker.heartbeat.step()


def test_a_failed_read_of_control_costs_no_proof(
    runner: Build, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    worker = runner()
    worker.heartbeat._database.deadline = 2.0
    listener, site = raw_connection(), raw_connection(autocommit=False)
    listener.execute(f'listen "{worker.proof_channel()}"'.encode())
    site.execute(f'lock table "{worker_schema}"._private_schedules in access exclusive mode'.encode())
    before = beat_of(worker)
    worker.heartbeat.step()
    assert beat_of(worker) > before
    assert len(list(listener.notifies(timeout=WAIT_TIMEOUT, stop_after=1))) == 1
    site.rollback()


def test_a_beat_on_a_lost_connection__sends_its_proof_on_the_next(
    runner: Build, raw_connection: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener, whose connection was lost, too, asks for the proof and hears nothing until then."""
    worker = runner()
    monkeypatch.setattr(DatabaseWorker, "hears_requests", False)
    worker.heartbeat.step()
    listener, lost = raw_connection(), worker.heartbeat._database.current
    assert lost is not None
    listener.execute(f'listen "{worker.proof_channel()}"'.encode())
    listener.execute("select pg_terminate_backend(%s, 5000)", [lost.info.backend_pid])
    # As if the last read of what is asked of the worker were long ago.
    worker.heartbeat._last_read = -math.inf
    worker.heartbeat.wake()
    with pytest.raises(psycopg.OperationalError):
        worker.heartbeat.step()
    worker.heartbeat.step()
    assert len(list(listener.notifies(timeout=WAIT_TIMEOUT, stop_after=1))) == 1


def test_a_full_queue_of_notifications_costs_no_beat(runner: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    # An error of the same class as that of a full queue.
    fails = "/* gw:proof */ select repeat(%(channel)s::text, 1000000000)"
    monkeypatch.setattr(control, "READ_CONTROL_AND_PROVE", fails)
    worker = runner()
    before = worker.heartbeat._last_beat
    pause(task="quick")
    worker.heartbeat.step()
    assert worker.heartbeat._last_beat > before
    assert worker.pauses.tasks == {"quick"}, "what is asked of the worker is read nevertheless"
    assert worker.heartbeat.in_contact_since < before + WAIT_TIMEOUT
