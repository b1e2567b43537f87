"""What is recorded of jobs that are runs of schedules, on a worker whose parts the test steps.

None of the tasks keeps its results, unless a test says so: the flag of the job alone decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from django_graphile_worker import (
    PermanentFailure,
    cancel_jobs,
    complete_jobs,
    conf,
    pause,
    permanently_fail_jobs,
    remove_job,
    result,
    resume,
    task,
)
from django_graphile_worker.sql import recovery
from django_graphile_worker.sql.schedules.runs import RunOutcome
from tests.support import records
from tests.support.factories import minutes_ago
from tests.support.schedule_runs import fire, make_schedule, runs_of
from tests.support.stepped_worker import Build, own_tasks, run_all

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]


@pytest.fixture
def runner() -> Iterator[Build]:
    with own_tasks() as registered:

        @task
        def report(payload: Any) -> str:
            if payload.get("broken"):
                raise ValueError("no paper")
            if payload.get("hopeless"):
                raise PermanentFailure("no printer")
            return "printed"

        @task(keep_result=timedelta(seconds=60))
        def kept(payload: Any) -> str:
            return "printed"

        @task(atomic=True)
        def booked(payload: Any) -> None:
            Group.objects.create(name="booked")
            if payload.get("broken"):
                raise ValueError("no paper")

        @task
        def batch(payload: list[Any]) -> list[Any]:
            return [ValueError("no paper") if item == "bad" else None for item in payload]

        make = Build(registered)
        yield make
        for made in make.made:
            made.close()


def test_success__is_recorded_with_its_duration(runner: Build, wait_until: Wait) -> None:
    schedule = make_schedule()
    job_id = fire(schedule)
    (waiting,) = runs_of(schedule)
    assert (waiting.outcome, waiting.job_id, waiting.duration, waiting.attempts) == (
        RunOutcome.WAITING,
        job_id,
        None,
        0,
    )
    worker = runner()
    run_all(worker, wait_until)
    (run,) = runs_of(schedule)
    assert (run.outcome, run.attempts, run.exception_class) == (RunOutcome.SUCCEEDED, 1, None)
    assert run.started_at is not None
    assert run.ended_at is not None
    assert run.duration is not None
    assert 0 <= run.duration < 60
    assert run.ended_at - run.started_at == timedelta(seconds=run.duration)
    kept = result(job_id)
    assert kept is not None
    assert kept.value is None
    row = records.results(worker.settings.schema)[job_id]
    assert timedelta(hours=23) < row.expires_at - row.finished_at < timedelta(hours=25)


def test_task_that_keeps_its_results__keeps_the_value_for_the_longer_time(runner: Build, wait_until: Wait) -> None:
    schedule = make_schedule(task="kept")
    short = fire(schedule, keep=timedelta(hours=1))
    worker = runner()
    run_all(worker, wait_until)
    row = records.results(worker.settings.schema)[short]
    assert row.value == '"printed"'
    assert row.expires_at - row.finished_at > timedelta(minutes=59)


def test_failure__is_retrying_and_then_failed(runner: Build, wait_until: Wait) -> None:
    schedule = make_schedule()
    fire(schedule, {"broken": True}, max_attempts=2)
    worker = runner()
    run_all(worker, wait_until)
    (run,) = runs_of(schedule)
    assert (run.outcome, run.attempts, run.exception_class) == (RunOutcome.RETRYING, 1, "builtins.ValueError")
    _make_due()
    run_all(worker, wait_until)
    (run,) = runs_of(schedule)
    assert (run.outcome, run.attempts, run.exception_class) == (RunOutcome.FAILED, 2, "builtins.ValueError")
    assert run.duration is not None


def test_failure_that_is_cleaned_up__is_still_known(runner: Build, wait_until: Wait) -> None:
    schedule = make_schedule()
    fire(schedule, {"hopeless": True})
    run_all(runner(), wait_until)
    _execute("delete from {schema}._private_jobs")
    (run,) = runs_of(schedule)
    assert (run.outcome, run.attempts) == (RunOutcome.FAILED, 1)


def test_atomic_task__is_recorded_in_its_transaction(runner: Build, wait_until: Wait) -> None:
    schedule = make_schedule(task="booked")
    fire(schedule)
    worker = runner()
    run_all(worker, wait_until)
    assert Group.objects.filter(name="booked").exists()
    (run,) = runs_of(schedule)
    assert run.outcome is RunOutcome.SUCCEEDED
    fire(schedule, {"broken": True}, max_attempts=1)
    run_all(worker, wait_until)
    assert [each.outcome for each in runs_of(schedule)] == [RunOutcome.FAILED, RunOutcome.SUCCEEDED]


def test_forbidden_and_paused_flags__hold_runs_back(runner: Build, wait_until: Wait) -> None:
    schedule = make_schedule()
    fire(schedule, flags=["bulk"])
    run_all(runner(forbidden_flags=("bulk",)), wait_until)
    worker = runner()
    pause(flag="bulk", create=True)
    worker.control_reader.read(worker.claim_database)
    run_all(worker, wait_until)
    assert [each.outcome for each in runs_of(schedule)] == [RunOutcome.WAITING]
    resume(flag="bulk")
    worker.control_reader.read(worker.claim_database)
    run_all(worker, wait_until)
    assert [each.outcome for each in runs_of(schedule)] == [RunOutcome.SUCCEEDED]


def test_cancelled_and_removed_jobs__are_known(runner: Build) -> None:
    schedule = make_schedule()
    cancelled, removed, completed, failed = (fire(schedule, job_key=key) for key in ("a", "b", "c", "d"))
    cancel_jobs([cancelled], by="maria")
    remove_job("b")
    complete_jobs([completed])
    permanently_fail_jobs([failed], "It is not needed.")
    outcomes = {each.job_id: each.outcome for each in runs_of(schedule)}
    assert outcomes == {
        cancelled: RunOutcome.CANCELLED,
        removed: RunOutcome.REMOVED,
        completed: RunOutcome.REMOVED,
        failed: RunOutcome.FAILED,
    }


def test_expired_job__is_known(runner: Build, wait_until: Wait) -> None:
    schedule = make_schedule()
    fire(schedule, expires=minutes_ago(1))
    run_all(runner(), wait_until)
    (run,) = runs_of(schedule)
    assert (run.outcome, run.duration) == (RunOutcome.EXPIRED, None)


def test_job_of_a_worker_that_died__runs_again_and_fails_at_last(runner: Build, wait_until: Wait) -> None:
    schedule = make_schedule()
    job_id = fire(schedule, max_attempts=1)
    for number in range(recovery.POISON_LIMIT):
        _lock(job_id, f"django-worker-{number}")
        (run,) = runs_of(schedule)
        assert run.outcome is RunOutcome.RUNNING
        assert (run.duration or 0.0) > 0
        worker = runner()
        with connection.cursor() as cursor:
            recovery.recover_claims(
                cursor, [f"django-worker-{number}"], schema=worker.settings.schema, keeping=worker.result_keeping()
            )
        (run,) = runs_of(schedule)
    assert (run.outcome, run.duration) == (RunOutcome.FAILED, None)
    assert run.exception_class == "django_graphile_worker.exceptions.WorkerDiedError"


def test_job_that_is_cancelled_while_it_runs__is_known(runner: Build) -> None:
    schedule = make_schedule()
    job_id = fire(schedule)
    _lock(job_id, "django-worker-busy")
    cancel_jobs([job_id], by="maria")
    assert [each.outcome for each in runs_of(schedule)] == [RunOutcome.RUNNING]
    with connection.cursor() as cursor:
        recovery.recover_claims(cursor, ["django-worker-busy"], schema=runner().settings.schema)
    assert [each.outcome for each in runs_of(schedule)] == [RunOutcome.CANCELLED]


def test_job_that_a_worker_without_records_ran__is_unknown() -> None:
    schedule = make_schedule()
    fire(schedule)
    _execute("delete from {schema}._private_jobs")
    (run,) = runs_of(schedule)
    assert (run.outcome, run.duration, run.attempts) == (RunOutcome.UNKNOWN, None, 0)


def test_job_key__shows_the_replaced_run(runner: Build, wait_until: Wait) -> None:
    schedule = make_schedule()
    first = fire(schedule, job_key="nightly")
    assert fire(schedule, job_key="nightly") == first
    assert [each.outcome for each in runs_of(schedule)] == [RunOutcome.WAITING, RunOutcome.REPLACED]
    worker = runner()
    run_all(worker, wait_until)
    assert [each.outcome for each in runs_of(schedule)] == [RunOutcome.SUCCEEDED, RunOutcome.REPLACED]


def test_job_key_of_a_failed_run__leaves_both_runs(runner: Build, wait_until: Wait) -> None:
    schedule = make_schedule()
    worker = runner()
    first = fire(schedule, {"broken": True}, job_key="nightly", max_attempts=1)
    run_all(worker, wait_until)
    assert fire(schedule, job_key="nightly") != first
    assert [each.outcome for each in runs_of(schedule)] == [RunOutcome.WAITING, RunOutcome.FAILED]
    _execute("delete from {schema}._private_jobs")
    assert [each.outcome for each in runs_of(schedule)] == [RunOutcome.UNKNOWN, RunOutcome.FAILED]


def _make_due() -> None:
    _execute("update {schema}._private_jobs set run_at = now() - interval '1 second'")


def _lock(job_id: int, worker_id: str) -> None:
    _execute(
        "update {schema}._private_jobs set locked_by = %s || '/1', locked_at = now(), attempts = attempts + 1"
        " where id = %s",
        worker_id,
        job_id,
    )


def _execute(text: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text.replace("{schema}", f'"{conf.current().schema}"'), parameters or None)
