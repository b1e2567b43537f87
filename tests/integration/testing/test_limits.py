"""Limited jobs in the tests of a project: run_jobs(cron=False) obeys limits, at the time of the test."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_graphile_worker import Limit, LimitedUntil, add_job, task
from django_graphile_worker.registry import tasks
from django_graphile_worker.testing import clock, run_jobs

pytestmark = pytest.mark.django_db
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    with tasks.isolated():
        yield


def test_concurrency__does_not_keep_jobs_from_running_one_by_one() -> None:
    @task(limit=Limit("account:{account}", concurrency=1))
    def charge(account: int) -> None: ...

    for account in (1, 1, 2):
        add_job(charge, {"account": account}, queue_name="q" if account == 2 else None)
    assert [ran.job.payload["account"] for ran in run_jobs(cron=False)] == [1, 1, 2]
    assert run_jobs(cron=False) == []


def test_a_rate__is_kept_at_the_time_of_the_clock() -> None:
    started: list[datetime] = []

    @task(limit=Limit(rate="2/m"))
    def send() -> None:
        started.append(timezone.now())

    with clock(NOON) as time:
        for _ in range(5):
            add_job(send)
        assert len(run_jobs(cron=False)) == 2
        time.advance(seconds=30)
        assert run_jobs(cron=False) == []
        time.advance(minutes=10)
        assert len(run_jobs(cron=False)) == 3
    assert all(later - earlier > timedelta(minutes=1) for earlier, later in zip(started, started[2:], strict=False))


def test_a_job_that_is_added_after_the_clock_has_moved__runs_at_its_time() -> None:
    started: list[datetime] = []

    @task(limit=Limit("account:{account}", concurrency=1))
    def charge(account: int) -> None:
        started.append(timezone.now())

    with clock(NOON) as time:
        assert run_jobs(cron=False) == []
        time.advance(seconds=1)
        add_job(charge, {"account": 1})
        add_job(charge, {"account": 1}, run_at=timedelta(seconds=5))
        assert len(run_jobs(cron=False)) == 1
        time.advance(minutes=1)
        assert len(run_jobs(cron=False)) == 1
    assert started == [NOON + timedelta(seconds=1), NOON + timedelta(seconds=6)]


def test_limited_until__closes_the_key_until_the_clock_is_moved() -> None:
    calls: list[Any] = []

    @task(limit=Limit("account:{account}", concurrency=3))
    def call(account: int, number: int) -> None:
        calls.append(number)
        if len(calls) == 1:
            raise LimitedUntil(90)

    with clock(NOON) as time:
        for number in (1, 2, 3):
            add_job(call, {"account": 7, "number": number})
        assert [ran.outcome for ran in run_jobs(on_error="record", cron=False)] == ["failed"]
        time.advance(seconds=60)
        assert run_jobs(cron=False) == []
        time.advance(seconds=31)
        assert sorted(ran.job.payload["number"] for ran in run_jobs(cron=False)) == [1, 2, 3]
