"""What workers count reaches the statistics, and neither costs a lease nor waits for another worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from django_graphile_worker import Worker, add_job, run_once
from django_graphile_worker.models import Worker as RegisteredWorker
from django_graphile_worker.sql import statistics
from django_graphile_worker.sql.statistics import Row
from tests.conftest import RawConnection
from tests.support.operating import execute
from tests.support.recorded_statistics import make_row
from tests.support.stepped_worker import own_tasks, run_all, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)
Wait = Callable[..., None]


def note(payload: Any) -> None:
    if payload == "fail":
        raise ValueError("as asked")


@pytest.fixture(autouse=True)
def note_is_the_only_task() -> Iterator[None]:
    with own_tasks(note):
        yield


@pytest.fixture
def counts(raw_connection: Callable[..., RawConnection], worker_schema: str) -> Callable[[], dict[str, Any]]:
    """How many attempts of each task ended how, by the minute."""
    connection = raw_connection()

    def read() -> dict[str, Any]:
        rows = connection.execute(
            f"""select name, sum(counts[1])::int, sum(counts[2])::int from "{worker_schema}"._private_statistics
            where period_seconds = 60 and kind in ('all', 'task') group by 1""".encode()
        )
        return {name: (succeeded, failed) for name, succeeded, failed in rows}

    return read


def row(task: str, succeeded: int = 1) -> Row:
    histogram = {1: succeeded}
    return make_row(task, time.time(), succeeded=succeeded, durations=histogram, waits=histogram)


def append(cursor: Any, rows: list[Row], schema: str) -> None:
    statistics.append(cursor, rows, worker_id="django-worker-tests", schema=schema)


def test_a_worker_writes_what_it_counted_while_it_runs(counts: Callable[[], dict[str, Any]], wait_until: Wait) -> None:
    with Worker(concurrency=1, heartbeat_interval=0.1, worker_timeout=60.0):
        add_job("note")
        add_job("note", "fail")
        wait_until(lambda: counts() == {"note": (1, 1), "": (1, 1)})


def test_what_was_counted_last_is_written_at_the_stop(counts: Callable[[], dict[str, Any]]) -> None:
    for expected in (5, 10):
        for _ in range(5):
            add_job("note")
        assert run_once() == 0
        assert counts() == {"note": (expected, 0), "": (expected, 0)}


def test_workers_that_stop_together_lose_nothing(counts: Callable[[], dict[str, Any]]) -> None:
    for _ in range(40):
        add_job("note")
    threads = [threading.Thread(target=run_once) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert counts()["note"] == (40, 0)


@pytest.mark.parametrize("table", ["_private_statistics", "_private_statistics_pending"])
def test_a_lock_on_the_statistics_does_not_cost_the_lease(
    raw_connection: Callable[..., RawConnection],
    worker_schema: str,
    counts: Callable[[], dict[str, Any]],
    wait_until: Wait,
    table: str,
) -> None:
    """No beat may wait for the lock: a worker whose beats do not arrive loses its lease."""
    holder = raw_connection(autocommit=False)
    holder.execute(f'lock table "{worker_schema}".{table} in access exclusive mode'.encode())
    with Worker(concurrency=1, heartbeat_interval=0.1, worker_timeout=60.0):
        add_job("note")
        waiting = "select exists (select from pg_locks where not granted and relation = %s::regclass"
        waiting += " and database = (select oid from pg_database where datname = current_database()))"
        observer = raw_connection()
        wait_until(lambda: observer.execute(waiting, [f'"{worker_schema}".{table}']).fetchone() == (True,))
        beats = {RegisteredWorker.objects.get().last_heartbeat_at}

        def has_beaten_often() -> bool:
            beats.add(RegisteredWorker.objects.get().last_heartbeat_at)
            return len(beats) > 5

        wait_until(has_beaten_often)
        assert observer.execute(waiting, [f'"{worker_schema}".{table}']).fetchone() == (True,)
        holder.rollback()
        wait_until(lambda: counts().get("note") == (1, 0))


def test_one_fold_in_a_while_is_enough_for_all(
    raw_connection: Callable[..., RawConnection],
    worker_schema: str,
    counts: Callable[[], dict[str, Any]],
    wait_until: Callable[..., None],
) -> None:
    with raw_connection().cursor() as cursor:

        def is_folded() -> bool:
            # Not if an autovacuum holds the lock.
            statistics.fold(cursor, schema=worker_schema, at_least_after=3600.0)
            return "a" in counts()

        append(cursor, [row("a")], worker_schema)
        wait_until(is_folded)
        for _ in range(2):
            assert counts()["a"] == (1, 0)
            append(cursor, [row("a")], worker_schema)
            statistics.fold(cursor, schema=worker_schema, at_least_after=3600.0)
        assert counts()["a"] == (1, 0)
        statistics.fold(cursor, schema=worker_schema)
    assert counts()["a"] == (3, 0)


def test_a_statistics_table_that_cannot_be_written_does_not_keep_a_worker_from_stopping(
    raw_connection: Callable[..., RawConnection], worker_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_graphile_worker.worker.reporting.statistics.LAST_RECORD_TIMEOUT", 0.2)
    holder = raw_connection(autocommit=False)
    holder.execute(f'lock table "{worker_schema}"._private_statistics_pending in access exclusive mode'.encode())
    add_job("note")
    assert run_once() == 0
    assert not RegisteredWorker.objects.exists()


def test_counts_that_could_not_be_written__are_written_with_the_next(
    worker_schema: str, counts: Callable[[], dict[str, Any]], wait_until: Wait
) -> None:
    with stepped_workers(note) as build:
        worker = build()
        for payload in ("fine", "fail"):
            add_job("note", payload, queue_name="eu")
        run_all(worker, wait_until)
        execute("alter table {schema}._private_statistics_pending rename to hidden")
        with pytest.raises(psycopg.errors.UndefinedTable):
            worker.statistics.step()
        execute("alter table {schema}.hidden rename to _private_statistics_pending")
        add_job("note", queue_name="eu")
        run_all(worker, wait_until)
        worker.statistics.close()
    assert counts() == {"note": (2, 1), "": (2, 1)}
    queues = (
        "select counts[1], counts[2] from {schema}._private_statistics where name = 'eu' and period_seconds = 86400"
    )
    assert execute(queues) == [(2, 1)]


def test_queues_and_the_worker__have_counts_of_their_own(worker_schema: str, wait_until: Wait) -> None:
    def named() -> set[tuple[str, str, int, int]]:
        rows = execute(
            "select kind, name, sum(counts[1])::int, sum(counts[2])::int from {schema}._private_statistics"
            " where period_seconds = 3600 and kind in ('queue', 'worker') group by 1, 2"
        )
        return {(kind, name, succeeded, failed) for kind, name, succeeded, failed in rows}

    with Worker(concurrency=1, heartbeat_interval=0.1, worker_timeout=60.0):
        worker_id = RegisteredWorker.objects.get().pk
        for payload in ("fine", "fail"):
            add_job("note", payload, queue_name="eu")
        add_job("note")
        expected = {("queue", "eu", 1, 1), ("worker", worker_id, 2, 1)}
        wait_until(lambda: named() == expected)
