"""How many jobs are claimed before a job: each task and each free queue counts for itself."""

from __future__ import annotations

import pytest
from django.db import connection

from django_graphile_worker.sql.inspection import overview
from tests.support.factories import make_job, minutes_ago
from tests.support.operating import execute

pytestmark = pytest.mark.django_db


def copies(job_id: int, number: int) -> None:
    execute(
        "insert into {schema}._private_jobs (task_id, job_queue_id, run_at, priority)"
        " select task_id, job_queue_id, run_at, priority from {schema}._private_jobs, generate_series(1, %s)"
        " where id = %s",
        [number, job_id],
    )


def before(schema: str, *tasks: str, priority: int = 0) -> int:
    run_at = minutes_ago(5)
    job = make_job(tasks[-1], run_at=run_at, priority=priority)
    with connection.cursor() as cursor:
        return overview.jobs_before(cursor, job, tasks, priority=priority, run_at=run_at, schema=schema)


@pytest.mark.parametrize("locked_at", ["now()", "'infinity'"], ids=["held", "paused"])
def test_many_jobs_of_a_held_or_paused_queue__do_not_hide_the_others(worker_schema: str, locked_at: str) -> None:
    # The first task has the lowest id, and its queue the most jobs.
    copies(make_job("held", queue_name="held", run_at=minutes_ago(60)), 3000)
    copies(make_job("free", queue_name="free", run_at=minutes_ago(60)), 1500)
    copies(make_job("plain", run_at=minutes_ago(60)), 199)
    execute(
        f"update {{schema}}._private_job_queues set locked_at = {locked_at}, locked_by = 'x' where queue_name = 'held'"
    )
    assert before(worker_schema, "held", "free", "plain", "send") == 201


def test_more_jobs_of_one_task_than_are_counted__are_more_than_the_limit(worker_schema: str) -> None:
    copies(make_job("plain", run_at=minutes_ago(60)), 3000)
    assert before(worker_schema, "plain", "send") == overview.MAX_BEFORE + 1


def test_queue__counts_if_any_of_its_first_jobs_is_before(worker_schema: str) -> None:
    make_job("unknown", queue_name="a", run_at=minutes_ago(60))
    make_job("send", queue_name="b", run_at=minutes_ago(4))
    make_job("send", queue_name="c", run_at=minutes_ago(-60), priority=-1)
    make_job("send", queue_name="c", run_at=minutes_ago(6))
    make_job("other", queue_name="d", run_at=minutes_ago(1), priority=-1)
    make_job("send", queue_name="e", run_at=minutes_ago(60), priority=1)
    assert before(worker_schema, "other", "send") == 2
