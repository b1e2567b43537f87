"""Estimates of the backlog: the numbers of single tasks, whose jobs are side by side, and samples without counts."""

from __future__ import annotations

import pytest
from django.db import connection

from django_graphile_worker.sql import statistics
from tests.support.factories import make_job, minutes_ago
from tests.support.operating import execute

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_pages(db: None) -> None:
    """Remove the pages of rows that earlier tests have rolled back: an estimate reads some of all pages."""
    execute("truncate {schema}._private_jobs")


def add_copies(job_id: int, number: int) -> None:
    execute(
        "insert into {schema}._private_jobs (task_id, run_at, attempts, last_error, payload)"
        " select task_id, run_at, attempts, last_error, payload from {schema}._private_jobs, generate_series(1, %s)"
        " where id = %s",
        [number, job_id],
    )


def test_jobs_that_were_added_together__are_estimated_well(worker_schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random pages of the same number miss them by half."""
    numbers = {"first": 15_000, "second": 4_000, "third": 2_000, "last": 9_000}
    for task, number in numbers.items():
        add_copies(make_job(task, run_at=minutes_ago(5)), number - 1)
    text = "select task.identifier, each.number from {schema}._private_estimate_backlog(100, array['ready']) as each"
    found = dict(execute(f"{text} join {{schema}}._private_tasks as task on task.id = each.task_id"))
    assert found == {task: pytest.approx(number, rel=0.1) for task, number in numbers.items()}


def test_estimate__has_the_numbers_of_large_tasks(worker_schema: str) -> None:
    add_copies(make_job("large", run_at=minutes_ago(5)), 299)
    add_copies(make_job("retried", run_at=minutes_ago(-5), attempts=1, last_error="no"), 399)
    make_job("small", run_at=minutes_ago(5))
    with connection.cursor() as cursor:
        estimate = statistics.estimate_backlog(cursor, schema=worker_schema)
    assert estimate.tasks == {"large": [300, 0, 0], "retried": [0, 400, 0]}
    assert (estimate.ready, estimate.scheduled, estimate.retrying) == (301, 0, 400)


def test_sample_without_counts__estimates_all_states(worker_schema: str) -> None:
    for _ in range(3):
        make_job("send", run_at=minutes_ago(5))
    make_job("send", run_at=minutes_ago(-5))
    make_job("send", locked_by="worker")
    with connection.cursor() as cursor:
        assert statistics.sample_backlog(cursor, schema=worker_schema, most=0)
        sample = statistics.latest_sample(cursor, schema=worker_schema, newer_than=120)
    assert sample is not None
    assert (sample.ready, sample.scheduled, sample.running, sample.retrying) == (3, 1, 1, 0)
    assert set(sample.estimated) == {"ready", "scheduled", "running", "retrying", "permanently_failed"}


def test_empty_table__has_no_jobs(worker_schema: str) -> None:
    with connection.cursor() as cursor:
        estimate = statistics.estimate_backlog(cursor, schema=worker_schema)
    assert (estimate.ready, estimate.scheduled, estimate.tasks) == (0, 0, {})
