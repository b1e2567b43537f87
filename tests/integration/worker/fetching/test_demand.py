"""How many jobs are claimed ahead, on a real database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_graphile_worker.models import Job
from django_graphile_worker.worker.fetching import fetcher
from tests.support.factories import make_job
from tests.support.stepped_worker import Build, expect_jobs_of, run_all

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]


def test_claims_no_more_than_the_slots_before_it_knows_how_long_jobs_take(runner: Build) -> None:
    for _ in range(10):
        make_job("slow")
    worker = runner(concurrency=3)
    assert worker.fetcher.step() == 0.0
    assert Job.objects.filter(locked_by=worker.worker_id).count() == 3


def test_claims_ahead_once_jobs_turn_out_short(runner: Build, wait_until: Wait, ran: list[Any]) -> None:
    for number in range(300):
        make_job("quick", {"n": number})
    worker = runner(concurrency=2, local_queue_size=50)
    worker.fetcher.step()
    wait_until(lambda: worker.pool.is_idle)
    worker.fetcher.step()
    assert worker.fetcher._prefetch.ahead(50) > 0
    run_all(worker, wait_until)
    assert sorted(ran) == list(range(300))
    assert not Job.objects.exists()


@pytest.mark.parametrize("queue_name", [None, "q"])
def test_large_payloads_behind_small_ones_are_not_hoarded(
    runner: Build, wait_until: Wait, monkeypatch: pytest.MonkeyPatch, queue_name: str | None
) -> None:
    monkeypatch.setattr(fetcher, "BYTES_AHEAD", 20_000)
    worker = runner(concurrency=2, local_queue_size=500)
    for number in range(10):
        make_job("quick", {"n": number})
    run_all(worker, wait_until)
    # As short as they are on a machine that does nothing else.
    expect_jobs_of(0.0001, worker, count=1000)
    assert worker.fetcher._prefetch.ahead(500) > 100
    assert worker.fetcher._prefetch.per_queue(500) > 100
    for _ in range(40):
        make_job("slow", {"x": "y" * 4000}, queue_name=queue_name)
    worker.fetcher.step()
    assert 0 < worker.pool.waiting_size <= 20_000 + 2 * 5000
    held = Job.objects.filter(locked_by__startswith=worker.worker_id).count()
    assert held <= 4 + 2
