"""The gauges of a queue, and the number that fleets are scaled by."""

from __future__ import annotations

import json
import time
from datetime import timedelta

import pytest
from django.db import connection, transaction

from django_graphile_worker import pause
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql.inspection.gauges import MAX_COUNTED, Gauges, TaskGauges
from django_graphile_worker.telemetry.readings import gauges_of
from tests.support.factories import make_failed_job, make_job, make_task, minutes_ago
from tests.support.limits import make_key, park_job
from tests.support.operating import DEAD, LIVE, execute, make_worker
from tests.support.recorded_statistics import append_and_fold, make_row

pytestmark = pytest.mark.django_db


def read() -> Gauges:
    return gauges_of(place_of())


def of_task(name: str) -> TaskGauges:
    (task,) = [task for task in read().tasks if task.identifier == name]
    return task


def copies(job_id: int, number: int) -> None:
    execute(
        "insert into {schema}._private_jobs (task_id, job_queue_id, run_at, priority)"
        " select task_id, job_queue_id, run_at, priority from {schema}._private_jobs, generate_series(1, %s)"
        " where id = %s",
        [number, job_id],
    )


def ran(schema: str, name: str, *, runs: int, seconds: float) -> None:
    """Record runs of a task that took so long in all."""
    row = make_row(name, time.time(), succeeded=runs, run_microseconds=int(seconds * 1e6))
    with connection.cursor() as cursor:
        append_and_fold(cursor, [row], schema=schema)


def test_jobs_of_each_state_are_counted_for_their_task(worker_schema: str) -> None:
    make_job("send", run_at=minutes_ago(3))
    make_job("send", run_at=minutes_ago(1), priority=-5)
    make_job("send", run_at=minutes_ago(2), queue_name="mail")
    make_job("send", run_at=minutes_ago(-5))
    make_job("send", run_at=minutes_ago(-5), attempts=1)
    make_job("send", locked_by=f"{LIVE}/1")
    make_failed_job("send")
    make_job("other", run_at=minutes_ago(-1))
    task = of_task("send")
    assert task[:7] == ("send", 3, 1, 1, 1, 1, 1)
    assert task.oldest_ready_seconds == pytest.approx(180, abs=10)
    # A job that waits for a limit is neither ready nor scheduled.
    park_job(make_key("account", "1"), "other", run_at=minutes_ago(1))
    assert of_task("other")[1:8] == (0, 0, 1, 0, 0, 0, 0.0)


def test_live_workers_and_their_slots_and_pauses() -> None:
    make_worker(LIVE, concurrency=3)
    make_worker("django-worker-other", concurrency=2)
    make_worker("django-worker-stopping", concurrency=7, is_stopping=True)
    make_worker("django-worker-unclear", concurrency="many")
    make_worker(DEAD, beat=minutes_ago(2), concurrency=5)
    for _ in range(4):
        # More than it has slots: one waits inside the worker.
        make_job("send", locked_by=f"{LIVE}/1")
    make_job("send", locked_by=f"{DEAD}/1")
    pause(queue="mail", create=True)
    pause(queue="print", until=timedelta(hours=1), create=True)
    pause(flag="slow")
    found = read()
    assert (found.workers, found.slots, found.slots_in_use) == (4, 5, 3)
    assert found.pauses == {"queue": 2, "flag": 1}


def test_backlog__is_the_time_that_the_slots_take_for_the_ready_jobs(worker_schema: str) -> None:
    ran(worker_schema, "send", runs=10, seconds=20)
    ran(worker_schema, "quick", runs=90, seconds=5)
    copies(make_job("send", run_at=minutes_ago(1)), 29)
    make_job("send", run_at=minutes_ago(-10))
    make_task("quick")
    # As long as the average run: 25 s / 100.
    copies(make_job("unknown", run_at=minutes_ago(1)), 39)
    # No worker is alive: the first one finds work for so long, and a scaler must start it.
    assert read().backlog_seconds_per_slot == pytest.approx(70)
    make_worker(LIVE, concurrency=10)
    assert read().backlog_seconds_per_slot == pytest.approx(7)
    pause(task="send")
    assert read().backlog_seconds_per_slot == pytest.approx(1)


def test_backlog_of_queues__counts_as_many_slots_as_there_are_queues(worker_schema: str) -> None:
    ran(worker_schema, "send", runs=10, seconds=10)
    make_worker(LIVE, concurrency=10)
    copies(make_job("send", run_at=minutes_ago(1), queue_name="one"), 99)
    assert read().backlog_seconds == pytest.approx(10)
    for number in range(12):
        make_job("send", run_at=minutes_ago(1), queue_name=f"queue {number}")
    assert read().backlog_seconds == pytest.approx(112)


def test_empty_queue_without_statistics__has_no_backlog() -> None:
    assert read().backlog_seconds_per_slot == 0
    make_job("send", run_at=minutes_ago(1))
    assert read().backlog_seconds_per_slot == 1


def test_more_jobs_than_are_counted__are_as_many_as_the_last_sample_has() -> None:
    copies(make_job("send", run_at=minutes_ago(1)), MAX_COUNTED + 20)
    assert of_task("send").ready == MAX_COUNTED
    sample = json.dumps({"send": [70_000, 0, 0]})
    execute(
        "insert into {schema}._private_backlog_samples (minute, sampled_at, tasks) values (now(), now(), %s)", [sample]
    )
    assert of_task("send").ready == 70_000
    execute("update {schema}._private_backlog_samples set minute = now() - interval '1 hour'")
    assert of_task("send").ready == MAX_COUNTED


def test_limits_of_the_read_end_with_it() -> None:
    with transaction.atomic():
        read()
        assert execute("select current_setting('statement_timeout'), current_setting('enable_sort')") == [("0", "on")]
