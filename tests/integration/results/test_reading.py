"""``result()``: what became of a job."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_graphile_worker import (
    InvalidJobError,
    JobFailedError,
    Progress,
    ResultNotReadyError,
    ResultStatus,
    add_job,
    result,
)
from tests.support.factories import make_failed_job, make_job
from tests.support.results import FAILED, store_result
from tests.support.rows import in_quotes

pytestmark = pytest.mark.django_db


@pytest.fixture
def cursor(worker_schema: str) -> Any:
    with connection.cursor() as opened:
        yield opened


def report(cursor: Any, schema: str, job_id: int, attempt: int, done: float) -> None:
    cursor.execute(
        f"insert into {in_quotes(schema)}._private_progress values (%s, %s, %s, 7, 'page', now())",
        [job_id, attempt, done],
    )


def test_waiting_job__has_no_value_yet() -> None:
    job = add_job("task", {"order": 1}, queue_name="eu")
    found = result(job)
    assert found is not None
    assert (found.job_id, found.task_identifier, found.queue_name) == (job.id, "task", "eu")
    assert (found.status, found.is_finished, found.added_at) == (ResultStatus.WAITING, False, job.created_at)
    with pytest.raises(ResultNotReadyError, match=rf"^task #{job.id} has no value yet: it is"):
        found.value  # noqa: B018


def test_failed_job__raises_the_first_line_of_its_error() -> None:
    found = result(make_failed_job("task", error="ValueError: no such order\n\nTraceback"))
    assert found is not None
    assert (found.status, found.is_finished) == (ResultStatus.FAILED, True)
    with pytest.raises(JobFailedError, match=r"it failed: ValueError: no such order$"):
        found.value  # noqa: B018


def test_retried_job__is_waiting_again_and_keeps_its_attempts(cursor: Any, worker_schema: str) -> None:
    job_id = make_job("task", attempts=0, max_attempts=25)
    attempt = {"worker_id": "w", "started_at": 1.5, "ended_at": 2.5, "exception_class": "shop.Broken", "traceback": "T"}
    store_result(cursor, job_id, worker_schema, status=FAILED, attempts=[attempt])
    found = result(job_id)
    assert found is not None
    assert (found.status, found.finished_at) == (ResultStatus.WAITING, None)
    (kept,) = found.attempts
    assert (kept.worker_id, kept.exception_class, kept.traceback) == ("w", "shop.Broken", "T")
    assert kept.ended_at is not None
    assert kept.started_at is not None
    assert (kept.ended_at - kept.started_at).total_seconds() == 1


def test_succeeded_job__has_the_value_that_its_task_returned(cursor: Any, worker_schema: str) -> None:
    store_result(cursor, 4711, worker_schema, value={"total": [1, 2.5, None, "ä"]})
    found = result(4711)
    assert found is not None
    assert (found.status, found.value) == (ResultStatus.SUCCEEDED, {"total": [1, 2.5, None, "ä"]})
    times = [found.added_at, found.first_started_at, found.last_started_at, found.finished_at]
    assert times == sorted(times)  # type: ignore[type-var]


@pytest.mark.parametrize("status", [0, 3])
def test_job_that_is_gone_before_its_end__was_removed(cursor: Any, worker_schema: str, status: int) -> None:
    store_result(cursor, 4711, worker_schema, status=status)
    found = result(4711)
    assert found is not None
    assert (found.status, found.is_finished) == (ResultStatus.REMOVED, True)
    with pytest.raises(JobFailedError, match="it was removed"):
        found.value  # noqa: B018


def test_job_of_which_nothing_is_kept__is_none() -> None:
    assert result(4711) is None


def test_progress__is_that_of_the_latest_attempt(cursor: Any, worker_schema: str) -> None:
    first = make_job("task", locked_by="w/1", attempts=1)
    second = make_job("task", locked_by="w/1", attempts=2)
    for job_id in (first, second):
        report(cursor, worker_schema, job_id, attempt=1, done=3)
    found, later = result(first), result(second)
    assert found is not None
    assert later is not None
    assert isinstance(found.progress, Progress)
    assert (found.progress.done, found.progress.total, found.progress.message) == (3, 7, "page")
    assert found.progress.updated_at is not None
    assert later.progress is None, "the second attempt has reported nothing yet"


def test_progress__stays_with_the_result(cursor: Any, worker_schema: str) -> None:
    store_result(cursor, 4711, worker_schema)
    report(cursor, worker_schema, 4711, attempt=1, done=7)
    found = result(4711)
    assert found is not None
    assert found.progress is not None
    assert found.progress.percent == 100


def test_naive_times__are_those_of_a_project_without_time_zones(settings: Any, cursor: Any, worker_schema: str) -> None:
    settings.USE_TZ = False
    attempt = {"worker_id": "w", "started_at": 1.5, "ended_at": 2.5}
    store_result(cursor, 4711, worker_schema, attempts=[attempt])
    found = result(4711)
    assert found is not None
    assert found.finished_at is not None
    assert found.finished_at.tzinfo is None
    assert found.attempts[0].ended_at is not None
    assert found.attempts[0].ended_at.tzinfo is None


@pytest.mark.parametrize("wrong", [0, -1, 2**63])
def test_id_that_no_job_can_have__is_refused_before_sql(wrong: int, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0), pytest.raises(InvalidJobError, match=r"^job_or_id: expected"):
        result(wrong)


def test_result__is_one_query(django_assert_num_queries: Any) -> None:
    job_id = make_job("task")
    with django_assert_num_queries(1):
        result(job_id)
