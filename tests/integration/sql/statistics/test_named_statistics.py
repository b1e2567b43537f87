"""Statistics of queues and workers: what is folded, the limit of names, and what charts read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from django_graphile_worker.sql.statistics import named_statistics
from django_graphile_worker.sql.statistics.named_statistics import MOST_NAMES, OTHERS, QUEUE, WORKER, NamedRows
from django_graphile_worker.sql.statistics.statistics import BUCKETS, DAY, HOUR, MINUTE, Row
from tests.support.operating import execute

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


def row(name: str, succeeded: int = 1, *, minutes: int = 0, bucket: int = 3) -> Row:
    histogram = [0] * BUCKETS
    histogram[bucket] = succeeded
    start = int((NOON + timedelta(minutes=minutes)).timestamp())
    return Row(start, name, succeeded, 2, 1, 0, 0.5, 0.25, histogram, histogram)


def record(schema: str, *rows: tuple[str, Row]) -> None:
    with connection.cursor() as cursor:
        named_statistics.append(cursor, rows, schema=schema)
        while named_statistics.fold(cursor, schema=schema):
            continue


def read(schema: str, kind: str, name: str, period: int = MINUTE) -> NamedRows:
    with connection.cursor() as cursor:
        since = NOON - timedelta(days=1)
        return named_statistics.read(cursor, kind, name, schema=schema, period=period, since=since)


def test_counts__add_up_in_every_resolution(worker_schema: str) -> None:
    record(worker_schema, (QUEUE, row("eu", 5)), (WORKER, row("django-worker-1", 5)))
    record(worker_schema, (QUEUE, row("eu", 7, bucket=9)), (QUEUE, row("eu", 1, minutes=1)), (QUEUE, row("us", 100)))
    (first, second) = read(worker_schema, QUEUE, "eu").rows
    assert (first.succeeded, first.failed, first.permanently_failed, first.duration_seconds) == (12, 4, 2, 1.0)
    assert (first.durations[3], first.durations[9], first.waits[9], len(first.waits)) == (5, 7, 7, BUCKETS)
    assert second.succeeded == 1
    assert [each.succeeded for each in read(worker_schema, QUEUE, "eu", HOUR).rows] == [13]
    assert [each.succeeded for each in read(worker_schema, QUEUE, "eu", DAY).rows] == [13]
    assert [each.succeeded for each in read(worker_schema, WORKER, "django-worker-1").rows] == [5]
    assert read(worker_schema, WORKER, "eu").rows == [], "a queue is no worker"


def names_in(schema: str) -> Sequence[tuple[str, int]]:
    return execute(
        "select name, succeeded from {schema}._private_named_statistics where period_seconds = 60 order by 2 desc, 1"
    )


def test_many_names__the_busiest_have_rows_and_the_rest_is_together(worker_schema: str) -> None:
    record(worker_schema, *((QUEUE, row(f"q{number:03}", number)) for number in range(1, MOST_NAMES + 11)))
    found = dict(names_in(worker_schema))
    assert len(found) == MOST_NAMES + 1
    assert found[OTHERS] == sum(range(1, 11))
    assert "q011" in found
    assert "q010" not in found
    # A name that has a row keeps it, a new name has no room, and so its chart has gaps instead of zeros.
    record(worker_schema, (QUEUE, row("q011", 1)), (QUEUE, row("late", 1000)))
    found = dict(names_in(worker_schema))
    assert (found["q011"], found[OTHERS]) == (12, 1055)
    late = read(worker_schema, QUEUE, "late")
    assert late.rows == []
    assert late.unknown_starts == frozenset({int(NOON.timestamp())})
    assert read(worker_schema, QUEUE, "q011").unknown_starts == frozenset()


def test_selection__offers_the_busiest_names_first(worker_schema: str) -> None:
    record(worker_schema, (QUEUE, row("eu", 5)), (QUEUE, row("us", 9)), (QUEUE, row(OTHERS, 99)), (WORKER, row("w", 1)))
    with connection.cursor() as cursor:
        found = named_statistics.busiest_names(cursor, schema=worker_schema, period=HOUR, since=NOON)
    assert found == {QUEUE: ["us", "eu"], WORKER: ["w"]}


def test_finer_resolutions__are_pruned_sooner(worker_schema: str) -> None:
    now = datetime.now(UTC)
    start = int((now - timedelta(hours=30)).timestamp()) // 60 * 60
    record(worker_schema, (QUEUE, row("eu")._replace(started_at=start)))
    with connection.cursor() as cursor:
        assert named_statistics.prune(cursor, schema=worker_schema, older_than=10 * DAY) == 2
        assert named_statistics.prune(cursor, schema=worker_schema, older_than=HOUR) == 2


def test_fold__leaves_what_another_worker_has_just_folded(worker_schema: str) -> None:
    record(worker_schema, (QUEUE, row("eu")))
    with connection.cursor() as cursor:
        named_statistics.append(cursor, [(QUEUE, row("eu"))], schema=worker_schema)
        named_statistics.fold(cursor, schema=worker_schema, at_least_after=3600)
    assert names_in(worker_schema) == [("eu", 1)]
