"""What is counted for the statistics, and that nothing counted is lost."""

from __future__ import annotations

import math
from unittest.mock import Mock

import pytest

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.statistics import INTERRUPTED, QUEUE, TASK
from django_graphile_worker.worker.outcomes import CompletedAtomically, Expired, Failed, Interrupted, Outcome, Succeeded
from django_graphile_worker.worker.reporting import statistics
from django_graphile_worker.worker.reporting.statistics import (
    SAMPLE,
    UNKNOWN_TASK,
    StatisticsBuffer,
    StatisticsRecorder,
)

NOW = 1_700_000_000.0
NAMES = {1: "send", 2: "charge"}


def claim(
    task_id: int = 1, *, due_before: float = 0.0, attempts: int = 1, max_attempts: int = 25, queue: str | None = None
) -> Claim:
    run_at, queue_id = NOW - due_before, None if queue is None else 3
    return Claim(
        7, task_id, attempts, "{}", queue_id, 0, run_at, max_attempts, None, 0, None, None, NOW, NOW, queue, "w/1"
    )


def counted(*outcomes: Outcome) -> StatisticsBuffer:
    buffer = StatisticsBuffer(clock=lambda: NOW)
    buffer.add(outcomes, NAMES.get)
    return buffer


def test_counts_every_kind_of_outcome_by_task() -> None:
    rows = counted(
        Succeeded(claim(1), 0.1),
        CompletedAtomically(claim(1), 0.1),
        Failed(claim(1), 0.1, "ValueError: no"),
        Failed(claim(1), 0.1, "ValueError: never", permanent=True),
        Failed(claim(1, attempts=3, max_attempts=3), 0.1, "ValueError: the last time"),
        Interrupted(claim(1), 0.1),
        Succeeded(claim(2), 0.1),
    ).drain()
    send, charge = sorted(rows, key=lambda row: row.name, reverse=True)
    assert (send.name, send.started_at) == ("send", int(NOW // 60) * 60)
    assert (send.succeeded, send.failed, send.permanently_failed, send.counts[INTERRUPTED]) == (2, 1, 2, 1)
    assert sum(send.durations) == sum(send.waits) == 5, "an interrupted run says nothing about how long a run takes"
    assert (charge.name, charge.succeeded) == ("charge", 1)


@pytest.mark.parametrize(
    ("seconds", "bucket"), [(0.0, 0), (0.0004, 0), (0.0005, 1), (0.001, 3), (1.0, 23), (5000.0, 47), (math.inf, 47)]
)
def test_buckets_are_half_octaves_and_hold_anything(seconds: float, bucket: int) -> None:
    (row,) = counted(Succeeded(claim(), seconds)).drain()
    assert row.durations[bucket] == 1


def test_wait_is_the_time_between_due_and_started() -> None:
    (row,) = counted(Succeeded(claim(due_before=3.0), 1.0)).drain()
    assert row.waits[25] == 1, "the bucket that ends at 2 seconds and a little"
    assert row.run_seconds == pytest.approx(1.0)


@pytest.mark.parametrize(("due_before", "bucket"), [(-10.0, 0), (math.inf, 47), (math.nan, 47), (-math.inf, 0)])
def test_odd_due_times_are_counted_as_none_or_very_long(due_before: float, bucket: int) -> None:
    (row,) = counted(Succeeded(claim(due_before=due_before), 0.0)).drain()
    assert row.waits[bucket] == 1


def test_a_large_batch_is_counted_whole_and_measured_in_part() -> None:
    (row,) = counted(*[Succeeded(claim(), 0.01)] * (10 * SAMPLE)).drain()
    assert row.succeeded == sum(row.durations) == sum(row.waits) == 10 * SAMPLE
    assert row.run_seconds == pytest.approx(0.01 * 10 * SAMPLE)


def test_an_expired_job_is_counted_by_the_database_and_reminds_the_recorder_to_fold() -> None:
    (row,) = counted(Expired(claim(), NOW)).drain()
    assert not any(row.counts)


def test_a_task_without_a_name_is_counted_all_the_same() -> None:
    (row,) = counted(Succeeded(claim(99), 0.1)).drain()
    assert row.name == UNKNOWN_TASK


def test_drained_rows_are_gone_and_restored_ones_are_added_to_newer_ones() -> None:
    buffer = counted(Succeeded(claim(), 0.1))
    rows = buffer.drain()
    assert buffer.drain() == []
    buffer.add([Succeeded(claim(), 0.1)], NAMES.get)
    buffer.restore(rows)
    (row,) = buffer.drain()
    assert row.succeeded == 2
    assert sum(row.durations) == 2
    assert row.run_seconds == pytest.approx(0.2)


def test_jobs_of_a_queue__are_counted_for_the_queue_too() -> None:
    buffer = counted(
        Succeeded(claim(1, queue="eu"), 0.1),
        Failed(claim(2, queue="eu"), 0.1, "ValueError: no"),
        Succeeded(claim(1), 0.1),
        Succeeded(claim(1, queue="us"), 0.1),
    )
    rows = buffer.drain()
    queues = {row.name: row for row in rows if row.kind == QUEUE}
    assert {name: (row.succeeded, row.failed, sum(row.waits)) for name, row in queues.items()} == {
        "eu": (1, 1, 2),
        "us": (1, 0, 1),
    }
    assert sum(row.succeeded for row in rows if row.kind == TASK) == 3, "and for the task"
    assert buffer.drain() == []


def test_many_queues__are_bounded_in_memory_and_in_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_QUEUES", 8)
    monkeypatch.setattr(statistics, "MAX_WRITTEN_QUEUES", 3)
    outcomes = [Succeeded(claim(queue=f"q{n}"), 0.1) for n in range(20) for _ in range(n % 8)]
    buffer = counted(*outcomes)
    assert len(buffer._queue_cells) == 9
    rows = [row for row in buffer.drain() if row.kind == QUEUE]
    assert len(rows) == 4
    assert sum(row.succeeded for row in rows) == len(outcomes)
    assert {row.name for row in rows} >= {"", "q7"}


def test_counts_of_queues__are_restored() -> None:
    buffer = counted(Succeeded(claim(queue="eu"), 0.1))
    buffer.restore(buffer.drain())
    buffer.add([Succeeded(claim(queue="eu"), 0.1)], NAMES.get)
    found = [(row.kind, row.name, row.succeeded, sum(row.waits)) for row in buffer.drain()]
    assert found == [(TASK, "send", 2, 2), (QUEUE, "eu", 2, 2)]


def test_nothing_to_record_is_no_statement() -> None:
    worker = Mock()
    worker.settings.heartbeat_interval = 10.0
    recorder, database = StatisticsRecorder(worker), worker.database.return_value
    recorder.step()
    recorder.close()
    database.cursor.assert_not_called()
    database.close.assert_called()
