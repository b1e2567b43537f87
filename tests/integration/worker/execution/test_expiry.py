"""Jobs that were not started in time, on a worker whose parts the test steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker import (
    JobExpiredError,
    ResultStatus,
    add_job,
    get_job,
    models,
    result,
    signals,
    task,
)
from django_graphile_worker.sql.results import HistoryOutcome
from tests.support.factories import make_job, minutes_ago
from tests.support.rows import query
from tests.support.stepped_worker import Build, own_tasks, run_all

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]


@pytest.fixture
def ran() -> list[Any]:
    return []


@pytest.fixture
def runner(ran: list[Any]) -> Iterator[Build]:
    """A factory of workers with the tasks ``quick``, which never expires, and ``urgent``, which does after a minute."""
    with own_tasks() as registered:

        @task(keep_result=True)
        def quick(payload: Any) -> None:
            ran.append(payload.get("n"))

        @task(expires=60)
        def urgent(payload: Any) -> None:
            ran.append(payload.get("n"))

        make = Build(registered)
        yield make
        for made in make.made:
            made.close()


def test_job__expires_by_its_own_time(runner: Build, wait_until: Wait, ran: list[Any]) -> None:
    heard: list[Any] = []
    worker = runner(history=86400.0)
    late = add_job("quick", {"n": 1}, expires=datetime.now(UTC) - timedelta(seconds=5), flags=["bulk"])
    add_job("quick", {"n": 2}, expires=3600)
    assert late.expires_at is not None
    signals.job_expired.connect(heard_by := lambda **arguments: heard.append(arguments))
    try:
        run_all(worker, wait_until)
    finally:
        signals.job_expired.disconnect(heard_by)
    assert ran == [2]
    assert get_job(late.id) is None
    assert [(each["job"].id, each["expires_at"]) for each in heard] == [(late.id, late.expires_at)]
    kept = result(late.id)
    assert kept is not None
    assert kept.status is ResultStatus.EXPIRED
    assert "it was not started by" in (kept.last_error or "")
    with pytest.raises(JobExpiredError, match="expired before it started"):
        _ = kept.value
    worker.statistics.step()
    schema = worker.settings.schema
    rows = query(
        f'select outcome, attempt, started_at, error from "{schema}"._private_history where job_id = {late.id}'
    )
    assert [row[:3] for row in rows] == [(HistoryOutcome.EXPIRED, 0, None)]
    counted = query(
        f'select period_seconds, kind, name, counts[5] from "{schema}"._private_statistics where counts[5] > 0'
    )
    assert sorted(counted) == sorted(
        (period, kind, name, 1) for period in (60, 600, 3600, 86400) for kind, name in (("all", ""), ("task", "quick"))
    )


def test_job_of_a_task_with_a_limit__expires_so_long_after_it_was_due(
    runner: Build, wait_until: Wait, ran: list[Any]
) -> None:
    worker = runner()
    make_job("urgent", {"n": 1}, run_at=minutes_ago(2))
    make_job("urgent", {"n": 2}, run_at=minutes_ago(0.5))
    add_job("urgent", {"n": 3}, run_at=datetime.now(UTC) - timedelta(minutes=5), expires=False)
    run_all(worker, wait_until)
    assert sorted(ran) == [2, 3]
    assert not models.Job.objects.exists()


def test_queue__goes_on_after_a_job_that_expired(runner: Build, wait_until: Wait, ran: list[Any]) -> None:
    worker = runner()
    make_job("urgent", {"n": 1}, run_at=minutes_ago(2), queue_name="mail")
    make_job("urgent", {"n": 2}, queue_name="mail")
    run_all(worker, wait_until)
    assert ran == [2]
    assert models.JobQueue.objects.get().is_available


@pytest.mark.parametrize("columns", [{"attempts": 1}, {"last_error": "The worker died."}])
def test_job_that_was_started_before__does_not_expire(
    runner: Build, wait_until: Wait, ran: list[Any], columns: dict[str, Any]
) -> None:
    worker = runner()
    make_job("urgent", {"n": 1}, run_at=minutes_ago(2), **columns)
    run_all(worker, wait_until)
    assert ran == [1]


def test_flag_that_another_program_set__counts(runner: Build, wait_until: Wait, ran: list[Any]) -> None:
    worker = runner()
    make_job("quick", {"n": 1}, flags={"expires:1000000000": True})
    make_job("quick", {"n": 2}, flags={"expires:never mind": True})
    run_all(worker, wait_until)
    assert ran == [2]


def test_clock_of_this_machine__does_not_decide(runner: Build, wait_until: Wait, ran: list[Any]) -> None:
    """The worker compares with the clock of the server, as its last heartbeat read it."""
    worker = runner()
    add_job("quick", {"n": 1}, expires=3600)
    worker.heartbeat._server_offset += 7200
    run_all(worker, wait_until)
    assert ran == []
    worker.heartbeat.wake()
    worker.heartbeat.round()
    add_job("quick", {"n": 2}, expires=3600)
    run_all(worker, wait_until)
    assert ran == [2]


def test_lost_claim__expires_nothing(runner: Build, wait_until: Wait, worker_schema: str) -> None:
    worker = runner()
    job_id = make_job("urgent", {}, run_at=minutes_ago(2))
    worker.fetcher.step()
    wait_until(lambda: worker.pool.is_idle)
    query(f"update \"{worker_schema}\"._private_jobs set locked_by = 'another' returning id")
    worker.releaser.step()
    assert models.Job.objects.filter(pk=job_id).exists()
