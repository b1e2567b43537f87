"""``wait_for_result()``: woken when a job ends, and refused where that cannot happen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections, transaction

from django_graphile_worker import (
    Result,
    ResultStatus,
    ResultTimeoutError,
    UncommittedJobError,
    UnknownResultError,
    add_job,
    await_for_result,
    wait_for_result,
)
from django_graphile_worker.results import waiting as result_waiting
from django_graphile_worker.sql import results as statements
from django_graphile_worker.worker.database.connection import Database
from tests.support.factories import make_failed_job, make_job
from tests.support.results import end_job, store_result
from tests.support.rows import in_quotes, query

pytestmark = pytest.mark.django_db(transaction=True)

DEADLINE = 60.0
Connect = Callable[..., Any]
WaitUntil = Callable[..., None]


@pytest.fixture
def waiting() -> Iterator[Callable[..., Future[Result]]]:
    """Start waits on other threads."""
    with ThreadPoolExecutor(8) as pool:

        def wait(*args: Any, **kwargs: Any) -> Future[Result]:
            return pool.submit(_wait_and_close, *args, **kwargs)

        yield wait


def _wait_and_close(*args: Any, **kwargs: Any) -> Result:
    try:
        return wait_for_result(*args, **kwargs)
    finally:
        connections.close_all()


@pytest.fixture
def only_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no look but the first one find the end of a job."""
    monkeypatch.setattr(result_waiting, "FIRST_READS", ())
    monkeypatch.setattr(result_waiting, "READ_INTERVAL", DEADLINE)


def waiters(schema: str) -> list[int]:
    return [row[0] for row in query(f"select job_id from {in_quotes(schema)}._private_waiters")]


def test_wait__ends_when_the_end_of_the_job_is_notified(
    only_notifications: None, waiting: Any, raw_connection: Connect, worker_schema: str, wait_until: WaitUntil
) -> None:
    job = add_job("task")
    wait = waiting(job, timeout=DEADLINE)
    wait_until(lambda: waiters(worker_schema) == [job.id])
    end_job(raw_connection(), job.id, worker_schema, value=[7])
    found = wait.result(DEADLINE)
    assert (found.status, found.value) == (ResultStatus.SUCCEEDED, [7])


def test_wait__returns_at_once_for_a_job_that_has_ended(raw_connection: Connect, worker_schema: str) -> None:
    job = add_job("task")
    end_job(raw_connection(), job.id, worker_schema, value="done")
    assert wait_for_result(job.id, timeout=timedelta(seconds=DEADLINE)).value == "done"
    assert wait_for_result(make_failed_job(), timeout=DEADLINE).status is ResultStatus.FAILED


def test_job_that_has_ended_in_the_same_transaction__is_read_on_the_connection_of_the_caller(
    worker_schema: str, django_assert_num_queries: Any
) -> None:
    """As in a TestCase, after run_jobs(): nobody else sees the job, nor its result."""
    with transaction.atomic():
        job = add_job("task")
        with connection.cursor() as cursor:
            store_result(cursor, job.id, worker_schema, value=7)
            cursor.execute(f"delete from {in_quotes(worker_schema)}._private_jobs where id = %s", [job.id])
        with django_assert_num_queries(1):
            assert wait_for_result(job, timeout=DEADLINE).value == 7
        assert async_to_sync(await_for_result)(job, timeout=DEADLINE).value == 7
    assert result_waiting._listeners == {}, "no session is open that would keep a test database from being dropped"


def test_wait__finds_the_end_of_a_statement_that_began_before_the_waiter_was_listed(
    waiting: Any, raw_connection: Connect, worker_schema: str, wait_until: WaitUntil
) -> None:
    """That statement sees no waiter and notifies of nothing."""
    job, worker = add_job("task"), raw_connection()
    with worker.transaction():
        end_job(worker, job.id, worker_schema, notifies=False)
        wait = waiting(job, timeout=DEADLINE)
        wait_until(lambda: waiters(worker_schema) == [job.id])
    assert wait.result(DEADLINE).status is ResultStatus.SUCCEEDED


def test_wait__finds_the_end_of_a_job_that_is_deleted_without_a_result(
    waiting: Any, raw_connection: Connect, worker_schema: str, wait_until: WaitUntil
) -> None:
    job = add_job("task")
    wait = waiting(job, timeout=DEADLINE)
    wait_until(lambda: waiters(worker_schema) == [job.id])
    raw_connection().execute(f"delete from {in_quotes(worker_schema)}._private_jobs".encode())
    with pytest.raises(UnknownResultError, match=r"nothing of it is kept: declare its task with @task\(keep_result="):
        wait.result(DEADLINE)


def test_notification_that_arrives_with_an_answer__is_not_missed(
    only_notifications: None,
    waiting: Any,
    raw_connection: Connect,
    worker_schema: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is read from the socket with the answer, so nothing is left there that would end the rest of the thread."""
    job, worker, read = add_job("task"), raw_connection(), statements.read_results

    def read_and_end(cursor: Any, job_ids: Any, **arguments: Any) -> Any:
        rows = read(cursor, job_ids, **arguments)
        monkeypatch.setattr(statements, "read_results", read)
        end_job(worker, job.id, worker_schema, value=1)
        cursor.execute("select 1")
        return rows

    monkeypatch.setattr(statements, "read_results", read_and_end)
    assert waiting(job, timeout=DEADLINE).result(DEADLINE).value == 1


def test_many_waits__share_one_connection_and_one_row_for_each_job(
    only_notifications: None, waiting: Any, raw_connection: Connect, worker_schema: str, wait_until: WaitUntil
) -> None:
    jobs = [add_job("task") for _ in range(4)]
    started = [waiting(job, timeout=DEADLINE) for job in [*jobs, *jobs]]
    wait_until(lambda: sorted(waiters(worker_schema)) == [job.id for job in jobs])
    listening = "select count(*) from pg_stat_activity where application_name = 'graphile_worker results'"
    # Sessions of the test before may need a moment to end.
    wait_until(lambda: query(f"{listening} and datname = current_database()") == [(1,)])
    worker = raw_connection()
    for job in jobs:
        end_job(worker, job.id, worker_schema, value=job.id)
    assert [wait.result(DEADLINE).value for wait in started] == [job.id for job in [*jobs, *jobs]]


def test_wait__survives_the_loss_of_its_connection(
    only_notifications: None, waiting: Any, raw_connection: Connect, worker_schema: str, wait_until: WaitUntil
) -> None:
    job, worker = add_job("task"), raw_connection()
    wait = waiting(job, timeout=DEADLINE)
    wait_until(lambda: waiters(worker_schema) == [job.id])
    listening = "application_name = 'graphile_worker results' and datname = current_database()"
    # Sessions of the test before may need a moment to end.
    wait_until(lambda: query(f"select count(*) from pg_stat_activity where {listening}") == [(1,)])
    ended = worker.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where {listening}").fetchall()
    assert ended == [(True,)]
    end_job(worker, job.id, worker_schema, value=1)
    assert wait.result(DEADLINE).value == 1


def test_unknown_job__is_refused_at_once() -> None:
    with pytest.raises(
        UnknownResultError, match=r"neither a job 4711 nor a result of it\. Either there never was such"
    ):
        wait_for_result(4711, timeout=DEADLINE)


def test_job_of_the_same_transaction__is_refused_at_once() -> None:
    with transaction.atomic():
        job = add_job("task")
        with transaction.atomic(), pytest.raises(UncommittedJobError, match=r"Wait after the atomic\(\) block"):
            wait_for_result(job, timeout=DEADLINE)


def test_committed_job__can_be_awaited_inside_a_transaction(
    waiting: Any, raw_connection: Connect, worker_schema: str
) -> None:
    job, other = add_job("task"), add_job("task")
    end_job(raw_connection(), job.id, worker_schema, value=1)
    with transaction.atomic():
        assert wait_for_result(job, timeout=DEADLINE).value == 1
        with pytest.raises(ResultTimeoutError):
            wait_for_result(other, timeout=0.01)


def test_old_snapshot__does_not_refuse_a_job_that_others_have_changed(
    raw_connection: Connect, worker_schema: str
) -> None:
    job_id = make_job("task")
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("set transaction isolation level repeatable read")
            cursor.execute("select 1")
        raw_connection().execute(
            f"update {in_quotes(worker_schema)}._private_jobs set attempts = max_attempts, last_error = 'E'".encode()
        )
        assert wait_for_result(job_id, timeout=DEADLINE).status is ResultStatus.FAILED


@pytest.mark.parametrize("setting", ["LISTEN", "NOTIFY"])
def test_without_notifications__it_polls(
    setting: str, settings: Any, waiting: Any, raw_connection: Connect, worker_schema: str, wait_until: WaitUntil
) -> None:
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, setting: False}
    job = add_job("task")
    wait = waiting(job, timeout=DEADLINE)
    end_job(raw_connection(), job.id, worker_schema, value=2, notifies=False)
    assert wait.result(DEADLINE).value == 2
    assert waiters(worker_schema) == [], "workers need not look for it"


def test_pooler__is_recognised_and_polled(
    monkeypatch: pytest.MonkeyPatch, waiting: Any, raw_connection: Connect, worker_schema: str
) -> None:
    """A transaction pooler passes no notifications on, and LISTEN would stay behind in a session of others."""
    monkeypatch.setattr(Database, "is_direct", False)
    job = add_job("task")
    wait = waiting(job, timeout=DEADLINE)
    end_job(raw_connection(), job.id, worker_schema, value=2)
    assert wait.result(DEADLINE).value == 2
    assert waiters(worker_schema) == []


def test_forked_process__has_listeners_of_its_own() -> None:
    job = add_job("task")
    with pytest.raises(ResultTimeoutError):
        wait_for_result(job, timeout=0.01)
    before = dict(result_waiting._listeners)
    assert before
    result_waiting._start_anew()
    try:
        assert result_waiting._listeners == {}
        with pytest.raises(ResultTimeoutError):
            wait_for_result(job, timeout=0.01)
        assert result_waiting._listeners.keys() == before.keys()
        assert result_waiting._listeners["default"] is not before["default"]
    finally:
        for listener in result_waiting._of_parents:
            listener.close()
        result_waiting._of_parents.clear()


def test_async_wait__leaves_the_event_loop_to_others(raw_connection: Connect, worker_schema: str) -> None:
    jobs = [add_job("task") for _ in range(20)]
    worker = raw_connection()

    def end_all() -> None:
        for job in jobs:
            end_job(worker, job.id, worker_schema, value=job.id)

    async def wait_for_all() -> list[Any]:
        started = [asyncio.ensure_future(await_for_result(job, timeout=DEADLINE)) for job in jobs]
        await asyncio.to_thread(end_all)
        return [found.value for found in await asyncio.gather(*started)]

    assert async_to_sync(wait_for_all)() == [job.id for job in jobs]


def test_async_wait__times_out() -> None:
    job = add_job("task")
    with pytest.raises(ResultTimeoutError):
        async_to_sync(await_for_result)(job, timeout=0.02)


def test_missing_schema__is_explained(settings: Any) -> None:
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "SCHEMA": "not_installed"}
    with pytest.raises(Exception, match=r"The database 'default' has no worker schema 'not_installed'"):
        wait_for_result(1, timeout=DEADLINE)
