"""The roll-up table: what is recorded adds up, in every resolution, and is forgotten in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker.sql.statistics import statistics
from django_graphile_worker.sql.statistics.statistics import BUCKETS, DAY, HOUR, MINUTE, TEN_MINUTES, Row, TaskRuns
from tests.support.recorded_statistics import append_and_fold

THEN = datetime(2020, 1, 1, tzinfo=UTC)


def row(started_at: float, task: str = "send", succeeded: int = 1, **counts: Any) -> Row:
    histogram = (0, succeeded, *([0] * (BUCKETS - 2)))
    known = {"failed": 0, "permanently_failed": 0, "interrupted": 0, "duration_seconds": 0.5, "wait_seconds": 0.25}
    return Row(
        started_at=int(started_at) // 60 * 60,
        task_identifier=task,
        succeeded=succeeded,
        durations=histogram,
        waits=histogram,
        **(known | counts),
    )


def read(period: int, schema: str) -> list[Row]:
    """Return the rows of each task."""
    with connection.cursor() as cursor:
        names = statistics.busiest_tasks(cursor, schema=schema, period=period, since=THEN, limit=1000)
        found = [statistics.read(cursor, schema=schema, period=period, since=THEN, task=name) for name in names]
    return [row for rows in found for row in rows]


def read_one(period: int, schema: str, task: str = statistics.ALL_TASKS) -> list[Row]:
    with connection.cursor() as cursor:
        return statistics.read(cursor, schema=schema, period=period, since=THEN, task=task)


def record(rows: list[Row], schema: str) -> None:
    with connection.cursor() as cursor:
        append_and_fold(cursor, rows, schema=schema)


@pytest.mark.django_db
def test_recording_twice_adds_up(worker_schema: str) -> None:
    minute = time.time() // HOUR * HOUR
    record([row(minute, succeeded=2, failed=1)], worker_schema)
    record([row(minute, succeeded=3, permanently_failed=4, interrupted=5)], worker_schema)
    (found,) = read(MINUTE, worker_schema)
    assert found[:6] == (int(minute), "send", 5, 1, 4, 5)
    assert (found.duration_seconds, found.wait_seconds) == (1.0, 0.5)
    assert list(found.durations) == list(found.waits) == [0, 5, *([0] * (BUCKETS - 2))]


@pytest.mark.django_db
def test_neighbouring_minutes_share_the_longer_periods(worker_schema: str) -> None:
    hour = time.time() // HOUR * HOUR
    record([row(hour), row(hour + 60), row(hour + 660), row(hour, "charge")], worker_schema)
    counts = {
        period: sorted((each.started_at - hour, each.task_identifier, each.succeeded) for each in found)
        for period in (MINUTE, TEN_MINUTES, HOUR)
        if (found := read(period, worker_schema))
    }
    assert counts[MINUTE] == [(0, "charge", 1), (0, "send", 1), (60, "send", 1), (660, "send", 1)]
    assert counts[TEN_MINUTES] == [(0, "charge", 1), (0, "send", 2), (600, "send", 1)]
    assert counts[HOUR] == [(0, "charge", 1), (0, "send", 3)]


@pytest.mark.django_db
def test_one_task_can_be_read_alone(worker_schema: str) -> None:
    record([row(time.time(), "send"), row(time.time(), "charge", succeeded=2)], worker_schema)
    assert [each.succeeded for each in read_one(MINUTE, worker_schema, "charge")] == [2]


@pytest.mark.django_db
def test_all_tasks_together_are_kept_in_rows_of_their_own(worker_schema: str) -> None:
    now = time.time() // HOUR * HOUR
    record([row(now, "send"), row(now, "charge", succeeded=2)], worker_schema)
    record([row(now, "send", succeeded=4)], worker_schema)
    for period in (MINUTE, TEN_MINUTES, HOUR, DAY):
        (total,) = read_one(period, worker_schema)
        assert total.succeeded == sum(total.durations) == 7
        assert {each.task_identifier for each in read(period, worker_schema)} == {"send", "charge"}


@pytest.mark.django_db
def test_the_figures_of_some_tasks_are_read_without_those_of_others(worker_schema: str) -> None:
    hour = int(time.time() // HOUR * HOUR)
    record([row(hour, "a", 3), row(hour + 60, "a", 2, failed=1), row(hour, "b", 9), row(hour, "c", 4)], worker_schema)
    record([row(hour - 120, "c", 1), row(hour + 120, "c", 1)], worker_schema)
    with connection.cursor() as cursor:
        assert statistics.busiest_tasks(cursor, schema=worker_schema, period=HOUR, since=THEN, limit=2) == ["b", "a"]
        expected = {"a": TaskRuns({hour: 3, hour + 60: 3}, 1), "c": TaskRuns({hour: 4}, 0)}
        for number_of_tasks in (3, 1000):
            runs = statistics.read_runs(
                cursor,
                ["a", "c", "d"],
                schema=worker_schema,
                period=MINUTE,
                starts=[hour - 60, hour, hour + 60],
                number_of_tasks=number_of_tasks,
            )
            assert runs == expected
        durations = statistics.read_durations(cursor, ["a", "d"], schema=worker_schema, period=MINUTE, since=THEN)
    assert durations == {"a": (0, 5, *([0] * (BUCKETS - 2)))}


@pytest.mark.django_db
def test_finer_resolutions_are_forgotten_sooner(worker_schema: str) -> None:
    ages = (timedelta(minutes=1), timedelta(hours=3), timedelta(hours=30), timedelta(days=9))
    now = time.time()
    record([row(now - age.total_seconds()) for age in ages], worker_schema)
    with connection.cursor() as cursor:
        statistics.prune(cursor, schema=worker_schema, older_than=timedelta(days=8).total_seconds())
    assert [len(read(period, worker_schema)) for period in (MINUTE, TEN_MINUTES, HOUR)] == [1, 2, 3]


@pytest.mark.django_db(transaction=True)
def test_workers_that_record_the_same_tasks_in_another_order_do_not_deadlock(
    worker_schema: str, raw_connection: Callable[..., Any]
) -> None:
    minute = time.time()
    names = [f"task {number}" for number in range(20)]
    troubles: list[Exception] = []

    def write(order: list[str]) -> None:
        try:
            with raw_connection() as mine, mine.cursor() as cursor:
                for _ in range(20):
                    append_and_fold(cursor, [row(minute, name) for name in order], schema=worker_schema)
        except Exception as trouble:
            troubles.append(trouble)

    threads = [threading.Thread(target=write, args=(order,)) for order in (names, names[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert troubles == []
    assert {each.succeeded for each in read(MINUTE, worker_schema)} == {40}
