"""What is counted for the statistics, and that nothing counted is lost."""

from __future__ import annotations

import math

import pytest

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.statistics import INTERRUPTED, QUEUE
from django_graphile_worker.worker.outcomes import CompletedAtomically, Expired, Failed, Interrupted, Outcome, Succeeded
from django_graphile_worker.worker.reporting import statistics
from django_graphile_worker.worker.reporting.statistics import (
    SAMPLE,
    StatisticsBuffer,
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


def test_a_large_batch_is_counted_whole_and_measured_in_part() -> None:
    (row,) = counted(*[Succeeded(claim(), 0.01)] * (10 * SAMPLE)).drain()
    assert row.succeeded == sum(row.durations) == sum(row.waits) == 10 * SAMPLE
    assert row.run_seconds == pytest.approx(0.01 * 10 * SAMPLE)


def test_an_expired_job_is_counted_by_the_database_and_reminds_the_recorder_to_fold() -> None:
    (row,) = counted(Expired(claim(), NOW)).drain()
    assert not any(row.counts)


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
