"""Samples of the backlog: exact while there are few jobs, estimated beyond, and one in each minute."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker.sql import statistics
from django_graphile_worker.sql.statistics import Sample
from tests.conftest import RawConnection
from tests.support.factories import make_failed_job, make_job, make_queue, minutes_ago
from tests.support.operating import execute

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def sampled(schema: str, **limits: int) -> Sample:
    """Take a sample, with other limits than those of a worker."""
    sizes = {"most": 100, "pages": 1000, "many": 5} | limits
    execute("select {schema}._private_sample_backlog(%s, %s, %s)", [sizes["most"], sizes["pages"], sizes["many"]])
    with connection.cursor() as cursor:
        found = statistics.latest_sample(cursor, schema=schema, newer_than=120)
    assert found is not None
    return found


def make_jobs() -> None:
    make_queue("eu")
    for number in range(12):
        make_job("send", run_at=minutes_ago(5), priority=number % 3)
    make_job("send", queue_name="eu")
    make_job("send", run_at=minutes_ago(5), attempts=1, last_error="no", flags={"slow": True})
    for _ in range(3):
        make_job("send", run_at=minutes_ago(-5))
    for _ in range(7):
        make_job("charge", run_at=minutes_ago(-5), attempts=2, last_error="no")
    for _ in range(6):
        make_failed_job("charge")
    make_job("charge", locked_by="worker")


def test_few_jobs__are_counted_exactly(worker_schema: str) -> None:
    make_jobs()
    sample = sampled(worker_schema)
    numbers = (sample.ready, sample.scheduled, sample.running, sample.retrying, sample.permanently_failed)
    assert numbers == (14, 3, 1, 7, 6)
    assert sample.estimated == []
    assert sample.tasks == {"send": [14, 0, 0], "charge": [0, 7, 6]}


def test_many_jobs__are_estimated_from_pages(worker_schema: str) -> None:
    """With more than the limit, the numbers come from pages: here from all pages, so they are exact."""
    make_jobs()
    sample = sampled(worker_schema, most=4)
    numbers = (sample.ready, sample.scheduled, sample.retrying, sample.permanently_failed)
    assert numbers == (14, 3, 7, 6)
    assert sample.estimated == ["permanently_failed", "ready", "retrying", "scheduled"]
    assert sample.tasks == {"send": [14, 0, 0], "charge": [0, 7, 6]}


def test_an_estimate__scales_the_pages_that_it_reads(worker_schema: str) -> None:
    make_job("send")
    execute(
        "insert into {schema}._private_jobs (task_id, run_at, payload) select (select min(id) from"
        " {schema}._private_tasks), now() - interval '1 hour', '{}' from generate_series(1, 20000)"
    )
    with connection.cursor() as cursor:
        estimate = statistics.estimate_backlog(cursor, schema=worker_schema)
    assert 15_000 < estimate.ready < 25_000


def test_one_minute__has_one_sample(worker_schema: str) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    with connection.cursor() as cursor:
        taken = [
            statistics.sample_backlog(cursor, schema=worker_schema, now=now + timedelta(seconds=each))
            for each in (0, 30, 54, 55, 70)
        ]
    assert taken == [True, False, False, True, False]


@pytest.mark.django_db(transaction=True)
def test_workers_that_sample_together__count_once(
    raw_connection: Callable[..., RawConnection], worker_schema: str
) -> None:
    make_jobs()
    now = datetime.now(UTC)
    barrier, taken = threading.Barrier(4), []

    def run(session: Any) -> None:
        barrier.wait(60)
        taken.append(statistics.sample_backlog(session.cursor(), schema=worker_schema, now=now))

    threads = [threading.Thread(target=run, args=[raw_connection()]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(taken) == [False, False, False, True]


@pytest.mark.django_db(transaction=True)
def test_a_worker__does_not_wait_for_the_worker_that_counts(
    raw_connection: Callable[..., RawConnection], worker_schema: str
) -> None:
    now = datetime.now(UTC)
    counting, other = raw_connection(autocommit=False), raw_connection()
    assert statistics.sample_backlog(counting.cursor(), schema=worker_schema, now=now)
    other.execute("set lock_timeout = '10s'")
    assert not statistics.sample_backlog(other.cursor(), schema=worker_schema, now=now)
    counting.commit()
    assert execute("select count(*) from {schema}._private_backlog_samples") == [(1,)]


def samples_at(schema: str, *rows: tuple[datetime, int, int]) -> None:
    for minute, ready, last_job_id in rows:
        execute(
            "insert into {schema}._private_backlog_samples (minute, sampled_at, ready, last_job_id)"
            " values (%s, %s, %s, %s)",
            [minute, minute + timedelta(seconds=5), ready, last_job_id],
        )


def test_periods__have_the_peak_and_the_rate_of_added_jobs(worker_schema: str) -> None:
    start = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)
    samples_at(
        worker_schema,
        (start - MINUTE, 0, 100),
        (start, 40, 160),
        (start + MINUTE, 90, 280),
        # No worker ran for five minutes: nobody knows when the jobs were added.
        (start + 6 * MINUTE, 10, 5000),
        (start + 7 * MINUTE, 20, 5060),
        # The sequence was restarted.
        (start + 11 * MINUTE, 7, 3),
    )
    with connection.cursor() as cursor:
        found = statistics.read_samples(cursor, schema=worker_schema, period=600, since=start)
        minutes = statistics.read_samples(cursor, schema=worker_schema, period=60, since=start)
    assert [(each.ready, each.added_per_second) for each in found] == [(90, pytest.approx(240 / 180)), (7, None)]
    assert [each.added_per_second for each in minutes] == [1.0, 2.0, None, 1.0, None]


def test_old_samples__are_pruned(worker_schema: str) -> None:
    now = datetime.now(UTC)
    samples_at(worker_schema, (now - timedelta(days=9), 1, 1), (now - timedelta(hours=2), 2, 2), (now, 3, 3))
    with connection.cursor() as cursor:
        assert statistics.prune_samples(cursor, schema=worker_schema, older_than=10**9) == 1
        assert statistics.prune_samples(cursor, schema=worker_schema, older_than=3600) == 1


def test_every_version__counts_and_estimates(versioned_connection: RawConnection, worker_schema: str) -> None:
    cursor = versioned_connection.cursor()
    for number in range(7):
        cursor.execute(f"select \"{worker_schema}\".add_job('send', run_at => now() - interval '1 minute')")
        if number < 2:
            cursor.execute(f"select \"{worker_schema}\".add_job('send', run_at => now() + interval '1 hour')")
    assert statistics.sample_backlog(cursor, schema=worker_schema)
    sample = statistics.latest_sample(cursor, schema=worker_schema, newer_than=120)
    estimate = statistics.estimate_backlog(cursor, schema=worker_schema)
    assert sample is not None
    assert (sample.ready, sample.scheduled) == (estimate.ready, estimate.scheduled) == (7, 2)
