"""Results and history, written by a worker whose parts the test steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_graphile_worker import PermanentFailure, RetryLater, add_job, registry, signals
from django_graphile_worker.models import Job
from django_graphile_worker.sql import releases
from django_graphile_worker.sql.results import HistoryOutcome, ResultStatus
from tests.conftest import RawConnection
from tests.support import records
from tests.support.factories import make_job
from tests.support.stepped_worker import Build, own_tasks, run_all

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]
DAY = timedelta(days=1)

outcomes: list[Any] = []
during: list[Callable[[], None]] = []


def keeping(payload: Any) -> Any:
    """Return what the test has prepared, or raise it; first do what the test wants to happen during the job."""
    while during:
        during.pop()()
    prepared = outcomes.pop(0) if outcomes else {"sum": 3}
    if isinstance(prepared, Exception):
        raise prepared
    return prepared


def plain(payload: Any) -> Any:
    return {object()}


def kept_atomic(payload: Any) -> Any:
    return keeping(payload)


@pytest.fixture
def build(worker_schema: str) -> Iterator[Build]:
    outcomes.clear()
    during.clear()
    with own_tasks(plain) as tasks:
        registry.task(keep_result=60)(keeping)
        registry.task(keep_result=60, atomic=True)(kept_atomic)
        make = Build(tasks)
        yield make
        for runner in make.made:
            runner.close()
    records.drop_days(worker_schema)


@pytest.fixture
def lost_claims() -> Iterator[list[int]]:
    lost: list[int] = []

    def note(job: Any, **kwargs: Any) -> None:
        lost.append(job.id)

    signals.claim_lost.connect(note)
    yield lost
    signals.claim_lost.disconnect(note)


def execute(statement: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def test_success__keeps_what_the_task_returned(build: Build, wait_until: Wait, worker_schema: str) -> None:
    job_id = make_job("keeping", {"n": 1}, queue_name="orders", key="order 4711")
    make_job("plain")
    worker = build()
    run_all(worker, wait_until)
    assert not Job.objects.exists()
    assert list(records.results(worker_schema)) == [job_id]
    kept = records.results(worker_schema)[job_id]
    assert (kept.status, json.loads(kept.value), kept.payload) == (ResultStatus.SUCCEEDED, {"sum": 3}, None)
    assert (kept.task_identifier, kept.queue_name, kept.job_key) == ("keeping", "orders", "order 4711")
    assert kept.added_at < kept.first_started_at == kept.last_started_at <= kept.finished_at
    assert kept.expires_at - kept.finished_at == timedelta(seconds=60)
    (attempt,) = kept.attempts
    assert (attempt["worker_id"], attempt["exception_class"], attempt["traceback"]) == (worker.worker_id, None, None)
    assert attempt["ended_at"] == pytest.approx(kept.finished_at.timestamp())
    assert records.history(worker_schema) == []


@pytest.mark.parametrize("name", ["keeping", "kept_atomic"])
def test_failures__are_told_in_the_result_until_the_success(
    build: Build, wait_until: Wait, worker_schema: str, name: str
) -> None:
    outcomes.extend([RetryLater(0, "not yet"), ValueError("no such order"), 42])
    job_id = make_job(name)
    worker = build()
    run_all(worker, wait_until)
    waiting = records.results(worker_schema)[job_id]
    assert (waiting.status, waiting.finished_at, waiting.value) == (ResultStatus.WAITING, None, None)
    execute(f'update "{worker_schema}"._private_jobs set run_at = now()')
    run_all(worker, wait_until)
    kept = records.results(worker_schema)[job_id]
    assert (kept.status, kept.value) == (ResultStatus.SUCCEEDED, "42")
    assert [attempt["exception_class"] for attempt in kept.attempts] == [
        "django_graphile_worker.exceptions.RetryLater",
        "builtins.ValueError",
        None,
    ]
    assert "ValueError: no such order" in kept.attempts[1]["traceback"]
    assert kept.first_started_at == waiting.first_started_at < kept.last_started_at


def test_value_that_json_cannot_hold__fails_the_job_for_good(
    build: Build, wait_until: Wait, worker_schema: str
) -> None:
    outcomes.append({"orders": [{"total": float("nan")}]})
    job_id = make_job("keeping")
    run_all(build(), wait_until)
    failed = records.results(worker_schema)[job_id]
    assert (failed.status, len(failed.attempts)) == (ResultStatus.FAILED, 1)
    assert failed.attempts[0]["exception_class"] == "django_graphile_worker.exceptions.ResultError"
    assert (
        "the result of keeping: expected a finite number, got nan at $.orders[0].total."
        in (failed.attempts[0]["traceback"])
    )
    assert not Job.objects.get().is_available


def test_setting__keeps_results_of_tasks_that_do_not_refuse(build: Build, wait_until: Wait, worker_schema: str) -> None:
    def returns(payload: Any) -> str:
        return "kept"

    def refuses(payload: Any) -> str:
        return "not kept"

    registry.task(returns)
    registry.task(keep_result=False)(refuses)
    job_id = make_job("returns")
    make_job("refuses")
    run_all(build(keep_results=timedelta(hours=2)), wait_until)
    (kept,) = records.results(worker_schema).values()
    assert (kept.job_id, kept.value, kept.expires_at - kept.finished_at) == (job_id, '"kept"', timedelta(hours=2))


@pytest.mark.parametrize("outcome", [1, ValueError("late")])
@pytest.mark.parametrize("name", ["keeping", "kept_atomic"])
def test_lost_claim__writes_nothing(
    build: Build, wait_until: Wait, worker_schema: str, lost_claims: list[int], name: str, outcome: Any
) -> None:
    job_id = make_job(name)
    outcomes.append(outcome)
    during.append(lambda: _as_another_session(f"update \"{worker_schema}\"._private_jobs set locked_by = 'another'"))
    worker = build(history=DAY)
    run_all(worker, wait_until)
    worker.signal_sender.step()
    assert Job.objects.get().locked_by == "another"
    assert (records.results(worker_schema), records.history(worker_schema)) == ({}, [])
    assert lost_claims == [job_id]


def _as_another_session(statement: str) -> None:
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}, autocommit=True) as another:
        another.execute(statement.encode())


def test_answer_that_is_lost__leaves_one_record_and_no_lost_claim(
    build: Build, wait_until: Wait, worker_schema: str, lost_claims: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    complete, answers = releases.complete_recorded, [psycopg.OperationalError("the connection broke")]

    def lose_first_answer(*args: Any, **kwargs: Any) -> set[int]:
        ids = complete(*args, **kwargs)
        if answers:
            raise answers.pop()
        return ids

    monkeypatch.setattr(releases, "complete_recorded", lose_first_answer)
    job_id = make_job("keeping")
    worker = build(history=DAY)
    worker.fetcher.step()
    wait_until(lambda: worker.pool.is_idle)
    worker.releaser.attempt()
    assert worker.releaser.pending_count == 1
    worker.releaser.attempt()
    worker.signal_sender.step()
    assert worker.releaser.pending_count == 0
    assert [row.job_id for row in records.history(worker_schema)] == [job_id]
    assert len(records.results(worker_schema)[job_id].attempts) == 1
    assert lost_claims == []


def test_history__has_a_row_for_each_attempt(build: Build, wait_until: Wait, worker_schema: str) -> None:
    outcomes.extend([ValueError("no"), PermanentFailure("never")])
    failing = make_job("keeping", {"order": 4711, "api_token": "hunter2"}, key="order 4711", queue_name="orders")
    worker = build(history=DAY, history_payloads=True)
    worker.retention.step()
    run_all(worker, wait_until)
    execute(f'update "{worker_schema}"._private_jobs set run_at = now()')
    run_all(worker, wait_until)
    atomic, silent = make_job("kept_atomic"), make_job("plain", {"n": 1})
    run_all(worker, wait_until)
    rows = records.history(worker_schema)
    assert [(row.job_id, row.attempt, row.outcome, row.task_identifier) for row in rows] == [
        (failing, 1, HistoryOutcome.FAILED, "keeping"),
        (failing, 2, HistoryOutcome.PERMANENTLY_FAILED, "keeping"),
        (atomic, 1, HistoryOutcome.SUCCEEDED, "kept_atomic"),
        (silent, 1, HistoryOutcome.SUCCEEDED, "plain"),
    ]
    assert {row.worker_id for row in rows} == {worker.worker_id}
    assert (rows[0].queue_name, rows[0].job_key) == ("orders", "order 4711")
    assert "ValueError: no" in rows[0].error
    assert json.loads(rows[0].payload) == {"order": 4711, "api_token": "••••••"}
    assert json.loads(rows[3].payload) == {"n": 1}
    for row in rows:
        assert row.added_at <= row.run_at <= row.started_at <= row.ended_at
        assert row.partition.endswith(f"_private_history_{row.ended_at:%Y%m%d}")


def test_history__is_written_without_a_partition_for_the_day(
    build: Build, wait_until: Wait, worker_schema: str
) -> None:
    make_job("plain")
    run_all(build(history=DAY), wait_until)
    assert not Job.objects.exists()
    (row,) = records.history(worker_schema)
    assert row.partition.endswith("_private_history_default")


def test_job_that_is_replaced_while_it_runs__keeps_its_key_and_number_in_the_history(
    build: Build, wait_until: Wait, worker_schema: str
) -> None:
    running = add_job("keeping", {"n": 1}, job_key="order 4711").id
    during.append(lambda: _add_in_another_thread("keeping", "order 4711"))
    outcomes.extend([ValueError("no"), 2])
    run_all(build(history=DAY), wait_until)
    rows = records.history(worker_schema)
    assert [(row.job_id == running, row.job_key, row.attempt, row.outcome) for row in rows] == [
        (True, "order 4711", 1, HistoryOutcome.PERMANENTLY_FAILED),
        (False, "order 4711", 1, HistoryOutcome.SUCCEEDED),
    ]


def _add_in_another_thread(name: str, job_key: str) -> None:
    add_job(name, {"n": 2}, job_key=job_key)


def test_interrupted_job__is_in_the_history_and_not_in_its_result(
    build: Build, wait_until: Wait, worker_schema: str
) -> None:
    job_id = make_job("keeping")
    worker = build(history=DAY)

    def stop() -> None:
        worker.executor.abort()
        outcomes.append(RetryLater(0))

    during.append(stop)
    worker.fetcher.step()
    wait_until(lambda: worker.pool.is_idle)
    worker.releaser.step()
    job = Job.objects.get()
    assert (job.locked_by, job.attempts) == (None, 0)
    (row,) = records.history(worker_schema)
    assert (row.job_id, row.outcome, row.attempt) == (job_id, HistoryOutcome.INTERRUPTED, 1)
    assert records.results(worker_schema) == {}


def test_results_together_too_large_for_one_statement__are_all_stored(
    build: Build, wait_until: Wait, worker_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_graphile_worker.worker import recording

    monkeypatch.setattr(recording, "MAX_CHARACTERS", 100)
    outcomes.extend(["x" * 60] * 5 + ["y" * 1000])
    for _ in range(6):
        make_job("keeping")
    run_all(build(), wait_until)
    assert sorted(len(row.value) for row in records.results(worker_schema).values()) == [62] * 5 + [1002]


def test_result_that_was_kept__is_stored_beside_an_old_row_of_many_attempts(
    build: Build, wait_until: Wait, worker_schema: str
) -> None:
    """A job that fails for months keeps its last hundred attempts."""
    job_id = make_job("keeping", max_attempts=1000)
    outcomes.extend([RetryLater(0, f"attempt {number}") for number in range(1, 104)])
    run_all(build(), wait_until)
    kept = records.results(worker_schema)[job_id]
    assert len(kept.attempts) == 100
    assert "attempt 5" in kept.attempts[0]["traceback"]
    assert kept.attempts[-1]["exception_class"] is None


@pytest.fixture
def listener(raw_connection: Callable[..., RawConnection]) -> RawConnection:
    listener = raw_connection()
    listener.execute('listen "jobs:result"')
    return listener


def test_notification__is_sent_only_for_ended_jobs_that_somebody_waits_for(
    build: Build, wait_until: Wait, worker_schema: str, listener: RawConnection
) -> None:
    worker = build()
    make_job("keeping")
    run_all(worker, wait_until)
    awaited, _ = make_job("keeping"), make_job("keeping")
    atomic = make_job("kept_atomic")
    records.wait_for(worker_schema, awaited)
    records.wait_for(worker_schema, atomic)
    outcomes.extend([RetryLater(0)] * 3)
    run_all(worker, wait_until)
    told: list[Any] = []

    def has_told_of_both() -> bool:
        told.extend(json.loads(notify.payload) for notify in listener.notifies(timeout=0))
        return len({job_id for each in told for job_id in each["jobs"]}) >= 2

    # The server sends notifications some time after the commit.
    wait_until(has_told_of_both)
    assert sorted(job_id for each in told for job_id in each["jobs"]) == [awaited, atomic]
    assert {each["schema"] for each in told} == {worker_schema}
