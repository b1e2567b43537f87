"""What operators and recovery do to jobs is told in results and history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker import add_job, complete_jobs, permanently_fail_jobs, registry, remove_job
from django_graphile_worker.sql import recovery, releases
from django_graphile_worker.sql.job_actions.bulk_steps import Call, run_step
from django_graphile_worker.sql.job_actions.changes import FAIL, Change
from django_graphile_worker.sql.releases import StoppedRun
from django_graphile_worker.sql.results import HistoryOutcome, ResultKeeping, ResultStatus, keeping
from tests.support import records
from tests.support.factories import cancel_claimed, make_job
from tests.support.slot import make_claim
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db

EVERYTHING = ResultKeeping(seconds={"plain": None}, default=60.0, has_history=True)
DEAD = "django-worker-dead"


@pytest.fixture
def kept(settings: Any) -> Iterator[None]:
    """A task that keeps its results, and a history."""
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"HISTORY": timedelta(days=1)}

    def keeps(payload: Any) -> None: ...
    def plain(payload: Any) -> None: ...

    with own_tasks(plain):
        registry.task(keep_result=60)(keeps)
        yield


def test_keeping__names_only_the_tasks_that_differ_from_the_setting(settings: Any) -> None:
    from django_graphile_worker import conf

    with own_tasks() as tasks:
        registry.task(keep_result=timedelta(minutes=1))(lambda_of("minute"))
        registry.task(keep_result=False)(lambda_of("never"))
        registry.task(lambda_of("default"))
        found = keeping(conf.current().replace(keep_results=5), tasks)
    assert (dict(found.seconds), found.default, found.has_history) == ({"minute": 60.0, "never": None}, 5.0, False)


def lambda_of(name: str) -> Any:
    def function(payload: Any) -> None: ...

    function.__name__ = name
    return function


@pytest.mark.usefixtures("kept")
def test_completed_and_removed_jobs__are_removed_in_their_results(worker_schema: str) -> None:
    completed = add_job("keeps").id
    removed = add_job("keeps", job_key="order 4711").id
    silent = add_job("plain").id
    complete_jobs([completed, silent])
    remove_job("order 4711")
    found = records.results(worker_schema)
    assert {job_id: row.status for job_id, row in found.items()} == {
        completed: ResultStatus.REMOVED,
        removed: ResultStatus.REMOVED,
    }
    assert found[removed].job_key == "order 4711"
    assert [(row.job_id, row.outcome) for row in records.history(worker_schema)] == [
        (completed, HistoryOutcome.REMOVED_BY_OPERATOR),
        (removed, HistoryOutcome.REMOVED_BY_OPERATOR),
        (silent, HistoryOutcome.REMOVED_BY_OPERATOR),
    ]


@pytest.mark.usefixtures("kept")
def test_job_that_an_operator_failed__tells_the_reason(worker_schema: str) -> None:
    job_id = add_job("keeps").id
    permanently_fail_jobs([job_id], "the customer has left")
    failed = records.results(worker_schema)[job_id]
    assert failed.status == ResultStatus.FAILED
    (attempt,) = failed.attempts
    assert attempt["exception_class"] == "django_graphile_worker.exceptions.FailedByOperatorError"
    reason = "the customer has left\n\nNot tried again after attempt 0 of 25."
    assert (attempt["traceback"], attempt["worker_id"]) == (reason, None)
    (row,) = records.history(worker_schema)
    assert (row.outcome, row.error) == (HistoryOutcome.FAILED_BY_OPERATOR, reason)


@pytest.mark.parametrize(
    "call", [Call(keeping=EVERYTHING), Call(change=Change(action=FAIL, reason="why"), keeping=EVERYTHING)]
)
def test_bulk_actions__record_every_job(worker_schema: str, call: Call) -> None:
    job_ids = [make_job("keeps"), make_job("keeps"), make_job("plain")]
    with connection.cursor() as cursor:
        step = run_step(cursor, call, job_ids, job_ids, schema=worker_schema)
    assert step.ids == job_ids
    assert sorted(records.results(worker_schema)) == job_ids[:2]
    assert [row.job_id for row in records.history(worker_schema)] == job_ids


def test_job_that_keeps_no_result__has_one_if_somebody_waits(worker_schema: str) -> None:
    awaited, forgotten = add_job("plain").id, add_job("plain").id
    records.wait_for(worker_schema, awaited)
    complete_jobs([awaited, forgotten])
    assert list(records.results(worker_schema)) == [awaited]


def recover(schema: str, kept: ResultKeeping) -> recovery.Recovered:
    with connection.cursor() as cursor:
        return recovery.recover_claims(cursor, [DEAD], schema=schema, keeping=kept)


def test_job_of_a_dead_worker__tells_that_the_attempt_was_lost(worker_schema: str) -> None:
    lost = make_job("keeps", locked_by=f"{DEAD}/1", attempts=1, queue_name="orders")
    silent = make_job("plain", locked_by=f"{DEAD}/1", attempts=1)
    assert sorted(recover(worker_schema, EVERYTHING).job_ids) == [lost, silent]
    (result,) = records.results(worker_schema).values()
    assert (result.job_id, result.status, result.queue_name) == (lost, ResultStatus.WAITING, "orders")
    (attempt,) = result.attempts
    assert attempt["worker_id"] == DEAD
    assert attempt["exception_class"] == "django_graphile_worker.exceptions.WorkerDiedError"
    name = "django_graphile_worker.exceptions.WorkerDiedError"
    assert attempt["traceback"] == f"{name}: The worker {DEAD} died while it held this job (the first time)."
    assert [(row.job_id, row.outcome, row.worker_id, row.attempt) for row in records.history(worker_schema)] == [
        (lost, HistoryOutcome.LOST, DEAD, 1),
        (silent, HistoryOutcome.LOST, DEAD, 1),
    ]


def test_job_that_killed_its_workers_too_often__has_failed(worker_schema: str) -> None:
    job_id = make_job("keeps", locked_by=f"{DEAD}/1", attempts=1, max_attempts=1, last_error="died twice")
    with connection.cursor() as cursor:
        cursor.execute(f'insert into "{worker_schema}"._private_job_recoveries values (%s, 2)', [job_id])
    recover(worker_schema, EVERYTHING)
    assert records.results(worker_schema)[job_id].status == ResultStatus.FAILED


def test_cancelled_job_of_a_dead_worker__is_removed_in_its_result(worker_schema: str) -> None:
    job_id = make_job("keeps", key="order 4711", locked_by=f"{DEAD}/1", attempts=3)
    cancel_claimed(job_id, "removed")
    recover(worker_schema, EVERYTHING)
    removed = records.results(worker_schema)[job_id]
    assert (removed.status, removed.job_key) == (ResultStatus.REMOVED, "order 4711")
    (row,) = records.history(worker_schema)
    assert (row.job_key, row.attempt) == ("order 4711", 3)


@pytest.mark.parametrize(
    ("has_begun", "outcome"), [(True, HistoryOutcome.INTERRUPTED), (False, HistoryOutcome.REMOVED_BY_OPERATOR)]
)
def test_running_job_that_was_removed_and_is_returned__is_removed_in_its_result(
    has_begun: bool, outcome: int, worker_schema: str
) -> None:
    job_id = make_job("keeps", key="order 4711", locked_by="django-worker-1/1", attempts=1)
    cancel_claimed(job_id, "removed")
    run = StoppedRun(make_claim(id=job_id, token="django-worker-1/1"), 7 if has_begun else None)
    with connection.cursor() as cursor:
        releases.return_stopped(cursor, [run], schema=worker_schema, keeping=EVERYTHING)
    removed = records.results(worker_schema)[job_id]
    assert (removed.status, removed.job_key) == (ResultStatus.REMOVED, "order 4711")
    assert len(removed.attempts) == has_begun
    (row,) = records.history(worker_schema)
    assert (row.outcome, row.job_key) == (outcome, "order 4711")
