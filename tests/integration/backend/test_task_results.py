"""Results of tasks that are no longer what they were."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker import cancel_jobs, get_job, remove_job
from django_graphile_worker.backend.results import job_id_of
from django_graphile_worker.exceptions import (
    FailedByOperatorError,
    JobCancelledError,
    JobExpiredError,
    WorkerDiedError,
)
from django_graphile_worker.registry import tasks
from django_graphile_worker.sql import recovery
from tests.support.stepped_worker import Build

pytestmark = pytest.mark.django_db
# A worker sees committed jobs only.
committing = pytest.mark.django_db(transaction=True)

Run = Callable[..., Any]


@committing
@pytest.mark.parametrize("path", ["gone.module.function", "tests.support.django_tasks.renamed"])
@pytest.mark.parametrize("table", ["_private_results", "_private_tasks"])
def test_task_that_has_gone__leaves_readable_results(
    framework: Any, run: Run, worker_schema: str, path: str, table: str
) -> None:
    from django_graphile_worker.backend.compat import TaskResultMismatch, task_backends

    kept = table == "_private_results"
    result = framework.add.enqueue(1, right=2) if kept else framework.broken.using(max_attempts=1).enqueue("text")
    run()
    column = "task_identifier" if kept else "identifier"
    with connection.cursor() as cursor:
        cursor.execute(
            f'update "{worker_schema}".{table} set {column} = %s where {column} = %s',
            [path, result.task.module_path],
        )
    found = task_backends["default"].get_result(result.id)
    assert (found.task.module_path, found.task.name) == (path, path.rpartition(".")[2])
    assert found.task.get_backend().alias == "default"
    if kept:
        assert (found.status, found.return_value, found.kwargs) == ("SUCCESSFUL", 3, {"right": 2})
    else:
        assert (found.status, found.errors[0].exception_class) == ("FAILED", ValueError)
    with pytest.raises(LookupError, match="it was renamed, or its module has gone"):
        found.task.call()
    with pytest.raises(TaskResultMismatch):
        framework.add.get_result(result.id)


@pytest.fixture
def unimported(framework: Any) -> Callable[[], None]:
    """A function after which no module has registered a task, as in a worker that has yet to find them."""
    return tasks._tasks.clear


@committing
def test_task_that_the_worker_finds__keeps_the_result_of_a_job_that_expired(
    framework: Any, unimported: Callable[[], None], run: Run
) -> None:
    late = framework.add.using(expires=datetime(2001, 1, 1, tzinfo=UTC)).enqueue(1)
    unimported()
    run()
    late.refresh()
    assert late.errors[0].exception_class is JobExpiredError


@committing
@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("labels", [(), ("emails",)], ids=["of this worker", "of another worker"])
def test_task_that_the_worker_finds__keeps_the_result_of_a_job_whose_worker_died(
    framework: Any,
    unimported: Callable[[], None],
    worker: Build,
    worker_schema: str,
    is_cancelled: bool,
    labels: tuple[str, ...],
) -> None:
    result = framework.add.enqueue(1)
    job_id = job_id_of(result.id, "default") or 0
    unimported()
    with connection.cursor() as cursor:
        cursor.execute(
            f'update "{worker_schema}"._private_jobs set locked_by = %s, locked_at = now(), attempts = 1 where id = %s',
            ["django-worker-dead/1", job_id],
        )
        if is_cancelled:
            cancel_jobs([job_id], by="maria")
        parts = worker(queue_labels=labels)
        parts.fetcher.step()
        keeping = parts.result_keeping()
        recovery.recover_claims(cursor, ["django-worker-dead"], schema=worker_schema, keeping=keeping)
    result.refresh()
    expected = JobCancelledError if is_cancelled else WorkerDiedError
    assert [(each.exception_class, result.worker_ids) for each in result.errors] == [(expected, ["django-worker-dead"])]


@committing
def test_job_that_expired__has_failed_without_an_attempt(framework: Any, run: Run) -> None:
    late = framework.add.using(expires=datetime(2001, 1, 1, tzinfo=UTC)).enqueue(1, right=2)
    began = datetime.now(UTC)
    timely = framework.add.using(expires=timedelta(hours=1)).enqueue(1, right=2)
    job = get_job(job_id_of(timely.id, "default") or 0)
    assert job is not None
    assert job.expires_at is not None
    # The flag has milliseconds.
    assert began - timedelta(milliseconds=1) <= job.expires_at - timedelta(hours=1) <= datetime.now(UTC)
    run()
    late.refresh()
    timely.refresh()
    assert (late.status, late.attempts, timely.status) == ("FAILED", 0, "SUCCESSFUL")
    assert late.errors[0].exception_class is JobExpiredError


def test_removed_job__has_failed_without_an_attempt(framework: Any) -> None:
    result = framework.report.enqueue(7)
    remove_job("report:7")
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 0)
    assert result.errors[0].exception_class is FailedByOperatorError


@committing
def test_expired_result__does_not_exist(framework: Any, run: Run, worker_schema: str) -> None:
    from django_graphile_worker.backend.compat import TaskResultDoesNotExist

    result = framework.add.enqueue(7)
    run()
    with connection.cursor() as cursor:
        cursor.execute(f'delete from "{worker_schema}"._private_results')
    with pytest.raises(TaskResultDoesNotExist, match="It may have expired"):
        framework.add.get_result(result.id)


@committing
def test_result_ttl__is_how_long_results_are_kept(framework: Any, run: Run, settings: Any, worker_schema: str) -> None:
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"RESULT_TTL": timedelta(hours=2)}}}
    framework.add.enqueue(7)
    framework.unkept.enqueue()
    framework.mail.enqueue("for an hour")
    run()
    with connection.cursor() as cursor:
        cursor.execute(
            f'select task_identifier, extract(epoch from expires_at - finished_at)::int from "{worker_schema}"'
            "._private_results order by 1"
        )
        assert cursor.fetchall() == [
            ("tests.support.django_tasks.add", 7200),
            ("tests.support.django_tasks.mail@emails", 3600),
        ]


def test_result_of_another_backend__does_not_exist(framework: Any, settings: Any) -> None:
    from django_graphile_worker.backend.compat import TaskResultDoesNotExist, task_backends

    settings.TASKS = {**settings.TASKS, "second": settings.TASKS["default"]}
    result = framework.add.using(backend="second").enqueue(1)
    assert task_backends["second"].get_result(result.id).backend == "second"
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(result.id)


def test_cancelled_job__has_failed_with_who_and_why(framework: Any) -> None:
    result = framework.report.enqueue(7)
    job_id = job_id_of(result.id, "default")
    assert job_id is not None
    cancel_jobs([job_id], reason="sent twice", by="maria")
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 0)
    (error,) = result.errors
    assert (error.exception_class, error.traceback) == (JobCancelledError, "Cancelled by maria: sent twice\n")
    assert result.finished_at is not None
