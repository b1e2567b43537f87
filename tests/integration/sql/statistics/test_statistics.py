"""The roll-up table: what is recorded adds up, in every resolution, and is forgotten in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker.sql import statistics
from django_graphile_worker.sql.statistics import (
    ALL,
    DAY,
    HOUR,
    INTERRUPTED,
    MAX_NAMES,
    MINUTE,
    OTHERS,
    QUEUE,
    TASK,
    TEN_MINUTES,
    WORKER,
    NamedRows,
    Row,
    TaskRuns,
)
from tests.conftest import RawConnection
from tests.support.operating import execute
from tests.support.recorded_statistics import WORKER_ID, append_and_fold, make_row

THEN = datetime(2020, 1, 1, tzinfo=UTC)


def row(started_at: float, name: str = "send", succeeded: int = 1, *, bucket: int = 1, **counts: Any) -> Row:
    histogram = {bucket: succeeded}
    known = {"durations": histogram, "waits": histogram} | counts
    return make_row(name, started_at, succeeded=succeeded, run_microseconds=500_000, **known)


def queue(started_at: float, name: str, succeeded: int = 1, **counts: Any) -> Row:
    return row(started_at, name, succeeded, kind=QUEUE, **counts)


def read(kind: str, name: str, period: int, schema: str) -> NamedRows:
    with connection.cursor() as cursor:
        return statistics.read(cursor, kind, name, schema=schema, period=period, since=THEN)


def names_in(schema: str, kind: str, period: int = MINUTE) -> dict[str, int]:
    """Return how many runs succeeded, by name."""
    return dict(
        execute(
            "select name, sum(counts[1])::int from {schema}._private_statistics"
            " where kind = %s and period_seconds = %s group by name",
            [kind, period],
        )
    )


def number_of_rows(schema: str, kind: str, period: int) -> int:
    where = "where kind = %s and period_seconds = %s"
    return int(execute(f"select count(*) from {{schema}}._private_statistics {where}", [kind, period])[0][0])


def record(rows: list[Row], schema: str) -> None:
    with connection.cursor() as cursor:
        append_and_fold(cursor, rows, schema=schema)


@pytest.mark.django_db
def test_recording_twice_adds_up(worker_schema: str) -> None:
    minute = time.time() // HOUR * HOUR
    record([row(minute, succeeded=2, failed=1)], worker_schema)
    record([row(minute, succeeded=3, permanently_failed=4, interrupted=5)], worker_schema)
    (found,) = read(TASK, "send", MINUTE, worker_schema).rows
    assert found[:3] == (TASK, "send", int(minute))
    assert (found.succeeded, found.failed, found.permanently_failed, found.counts[INTERRUPTED]) == (5, 1, 4, 5)
    assert (found.failures, found.runs, found.run_seconds) == (5, 10, 1.0)
    assert statistics.summed([found.durations, [0, -5]]) == (0,) * 48
    assert found.waits == [0, 5], "the array ends with the last number that is not zero"


@pytest.mark.django_db
def test_neighbouring_minutes_share_the_longer_periods(worker_schema: str) -> None:
    hour = time.time() // HOUR * HOUR
    record([row(hour), row(hour + 60), row(hour + 660), row(hour, "charge")], worker_schema)
    succeeded = {
        (name, period): [(each.started_at - hour, each.succeeded) for each in found]
        for period in (MINUTE, TEN_MINUTES, HOUR)
        for name in ("send", "charge")
        if (found := read(TASK, name, period, worker_schema).rows)
    }
    assert succeeded == {
        ("send", MINUTE): [(0, 1), (60, 1), (660, 1)],
        ("send", TEN_MINUTES): [(0, 2), (600, 1)],
        ("send", HOUR): [(0, 3)],
        ("charge", MINUTE): [(0, 1)],
        ("charge", TEN_MINUTES): [(0, 1)],
        ("charge", HOUR): [(0, 1)],
    }


@pytest.mark.django_db
@pytest.mark.parametrize(("kind", "name"), [(ALL, ""), (WORKER, WORKER_ID)])
def test_all_jobs_and_a_worker__have_the_sum_of_the_tasks(kind: str, name: str, worker_schema: str) -> None:
    now = time.time() // HOUR * HOUR
    record([row(now, "send"), row(now, "charge", succeeded=2), queue(now, "eu", 3)], worker_schema)
    record([row(now, "send", succeeded=4)], worker_schema)
    for period in (MINUTE, TEN_MINUTES, HOUR, DAY):
        (total,) = read(kind, name, period, worker_schema).rows
        assert total.succeeded == sum(total.durations) == 7
        assert names_in(worker_schema, TASK, period) == {"send": 5, "charge": 2}
        assert names_in(worker_schema, QUEUE, period) == {"eu": 3}


@pytest.mark.django_db
def test_expired_jobs__are_added_to_their_tasks_and_to_all_jobs(worker_schema: str) -> None:
    moment = datetime(2026, 1, 2, 12, 34, 56, tzinfo=UTC)
    record([row(moment.timestamp(), "a")], worker_schema)
    execute("select {schema}._private_count_expired(array['a', 'b', 'a'], %s)", [moment])
    execute("select {schema}._private_count_expired('{}', %s)", [moment])
    record([], worker_schema)
    for kind, name, expired, succeeded in ((TASK, "a", 2, 1), (TASK, "b", 1, 0), (ALL, "", 3, 1)):
        for period in (MINUTE, TEN_MINUTES, HOUR, DAY):
            (found,) = read(kind, name, period, worker_schema).rows
            assert (found.expired, found.succeeded) == (expired, succeeded), (name, period)
            assert found.started_at == moment.timestamp() // period * period


@pytest.mark.django_db
def test_many_names__the_busiest_have_rows_and_the_rest_is_together(worker_schema: str) -> None:
    noon = datetime(2026, 1, 2, 12, 0, tzinfo=UTC).timestamp()
    numbers = range(1, MAX_NAMES + 11)
    record([queue(noon, f"q{number:03}", number, bucket=number % 40) for number in numbers], worker_schema)
    found = names_in(worker_schema, QUEUE)
    assert len(found) == MAX_NAMES + 1
    assert found[OTHERS] == sum(range(1, 11))
    assert "q011" in found
    assert "q010" not in found
    # A name that has a row keeps it, a new name has no room, and so its chart has gaps instead of zeros.
    record([queue(noon, "q011", 1, bucket=30), queue(noon, "late", 1000)], worker_schema)
    found = names_in(worker_schema, QUEUE)
    assert (found["q011"], found[OTHERS]) == (12, 1055)
    late = read(QUEUE, "late", MINUTE, worker_schema)
    assert late == NamedRows([], frozenset({int(noon)}))
    known = read(QUEUE, "q011", MINUTE, worker_schema)
    assert known.unknown_starts == frozenset()
    assert (known.rows[0].durations[11], known.rows[0].durations[30]) == (11, 1)


@pytest.mark.django_db
def test_the_figures_of_some_tasks_are_read_without_those_of_others(worker_schema: str) -> None:
    hour = int(time.time() // HOUR * HOUR)
    record([row(hour, "a", 3), row(hour + 60, "a", 2, failed=1), row(hour, "b", 9), row(hour, "c", 4)], worker_schema)
    record([row(hour - 120, "c", 1), row(hour + 120, "c", 1)], worker_schema)
    with connection.cursor() as cursor:
        totals = statistics.read_totals(cursor, schema=worker_schema, period=HOUR, since=THEN)
        assert {each.name: (each.runs, each.failures, each.run_seconds) for each in totals} == {
            "a": (6, 1, 1.0),
            "b": (9, 0, 0.5),
            "c": (6, 0, 1.5),
        }
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
    assert {name: [*numbers[:2], sum(numbers)] for name, numbers in durations.items()} == {"a": [0, 5, 5]}


@pytest.mark.django_db
def test_finer_resolutions_are_forgotten_sooner(worker_schema: str) -> None:
    ages = (timedelta(minutes=1), timedelta(hours=3), timedelta(hours=30), timedelta(days=9))
    now = time.time()
    record([make(now - age.total_seconds(), "send") for age in ages for make in (row, queue)], worker_schema)
    with connection.cursor() as cursor:
        statistics.prune(cursor, schema=worker_schema, older_than=timedelta(days=8).total_seconds())
    for kind in (ALL, TASK, QUEUE, WORKER):
        kept = [number_of_rows(worker_schema, kind, period) for period in (MINUTE, TEN_MINUTES, HOUR)]
        assert kept == [1, 2, 3], kind


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
    assert names_in(worker_schema, TASK) == dict.fromkeys(names, 40)


def test_every_version__adds_up_and_reads(versioned_connection: RawConnection, worker_schema: str) -> None:
    cursor = versioned_connection.cursor()
    minute = time.time() // HOUR * HOUR
    for _ in range(2):
        rows = [row(minute, "send", 5), queue(minute, "eu", 4, bucket=7)]
        append_and_fold(cursor, rows, schema=worker_schema)
    expire = f"select \"{worker_schema}\"._private_count_expired(array['send'], to_timestamp({minute}))"
    cursor.execute(expire.encode())
    append_and_fold(cursor, [], schema=worker_schema)
    for kind, name, succeeded in ((TASK, "send", 10), (QUEUE, "eu", 8), (ALL, "", 10), (WORKER, WORKER_ID, 10)):
        found = statistics.read(cursor, kind, name, schema=worker_schema, period=DAY, since=THEN)
        assert [each.succeeded for each in found.rows] == [succeeded], kind
    for number_of_tasks in (1, 1000):
        runs = statistics.read_runs(
            cursor,
            ["send"],
            schema=worker_schema,
            period=HOUR,
            starts=[int(minute)],
            number_of_tasks=number_of_tasks,
        )
        assert runs == {"send": TaskRuns({int(minute): 10}, 0, 1)}
    assert statistics.prune(cursor, schema=worker_schema, older_than=-2 * DAY) == 16
