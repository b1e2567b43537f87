"""The fetcher, stepped on a real database."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from django_graphile_worker.models import Job
from django_graphile_worker.worker.fetching import fetcher
from tests.conftest import WAIT_TIMEOUT
from tests.support.factories import make_job, minutes_ago
from tests.support.stepped_worker import Build, Gate, expect_jobs_of, run_all

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]


def test_sleeps_until_the_next_job_is_due(runner: Build) -> None:
    worker = runner(poll_interval=80)
    # Who listens looks every ten seconds, whatever the interval.
    worker.fetcher._poll_interval = 80.0
    assert 70 < worker.fetcher.step() <= 80
    make_job("quick", run_at=minutes_ago(-1))
    assert 0 < worker.fetcher.step() <= 60


def test_looks_again_soon_for_a_due_job_whose_row_is_locked(
    runner: Build, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    """Nobody announces that a transaction let go of a row."""
    worker = runner(poll_interval=80)
    worker.fetcher._poll_interval = 80.0
    make_job("quick")
    with raw_connection().transaction() as other:
        other.connection.execute(f'select from "{worker_schema}"._private_jobs for update'.encode())
        # The first step asks whether there is more.
        worker.fetcher.step()
        assert worker.fetcher.step() <= 1


def test_a_retry_is_awaited(runner: Build, wait_until: Wait) -> None:
    make_job("failing")
    worker = runner(poll_interval=30)
    worker.fetcher._poll_interval = 30.0
    worker.fetcher.step()
    wait_until(lambda: worker.pool.is_idle)
    worker.releaser.step()
    # Somewhat less by now, on a slow machine nothing.
    assert 0 <= worker.fetcher.step() <= math.e


def test_gives_back_what_waits_too_long_for_a_slot(runner: Build, wait_until: Wait, gate: Gate) -> None:
    for _ in range(4):
        make_job("slow")
    worker = runner(concurrency=1, local_queue_size=10)
    worker.pool._totals.finished[0], worker.pool._totals.busy_seconds[0] = 0, 0.0
    expect_jobs_of(0.001, worker)
    worker.fetcher.step()
    assert gate.has_begun.acquire(timeout=WAIT_TIMEOUT)
    assert Job.objects.filter(locked_by=worker.worker_id).count() == 4
    wait_until(lambda: worker.pool._line._front_added_at() < time.monotonic() - fetcher.WAITING_TIMEOUT)
    worker.fetcher.step()
    worker.releaser.step()
    assert Job.objects.filter(locked_by=worker.worker_id).count() == 1
    assert sorted(Job.objects.values_list("attempts", flat=True)) == [0, 0, 0, 1]


def test_claims_nothing_without_the_lease(runner: Build) -> None:
    make_job("quick")
    worker = runner()
    worker.heartbeat._last_beat = -math.inf
    worker.fetcher.step()
    assert Job.objects.get().locked_by is None


def test_only_the_chosen_tasks_run(runner: Build, wait_until: Wait, ran: list[Any]) -> None:
    make_job("quick", {"n": 1})
    make_job("failing")
    run_all(runner(tasks=["q*", "failing"], exclude_tasks=["f*"]), wait_until)
    assert ran == [1]
    assert Job.objects.get().attempts == 0
