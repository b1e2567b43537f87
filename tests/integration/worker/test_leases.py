"""Leases that are lost and kept, and claims that belong to one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from django_graphile_worker import add_job, remove_job
from django_graphile_worker.models import Job, JobQueue
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.pool.line import to_work_units
from tests.conftest import WAIT_TIMEOUT
from tests.support.factories import make_job
from tests.support.stepped_worker import Build, expect_jobs_of, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]

ran: list[Any] = []


class Gates:
    """Runs that each end when the test says so: well, or not."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.runs: list[tuple[threading.Event, list[str]]] = []

    def __call__(self) -> None:
        may_end, fate = threading.Event(), list[str]()
        self.runs.append((may_end, fate))
        self.begun.release()
        assert may_end.wait(WAIT_TIMEOUT)
        if fate:
            raise ValueError(fate[0])

    def end(self, number: int, *, fails: bool = False) -> None:
        may_end, fate = self.runs[number]
        fate.extend(["It does not work"] * fails)
        may_end.set()


gates = Gates()


def gated(payload: Any) -> None:
    gates()


def collect(payload: Any) -> None:
    ran.append(payload)


@pytest.fixture
def runner() -> Iterator[Build]:
    ran.clear()
    gates.__init__()  # type: ignore[misc]
    with stepped_workers(gated, collect) as make:
        yield make
        for number in range(len(gates.runs)):
            gates.end(number)


def recover_from(worker: DatabaseWorker, by: DatabaseWorker, connection: Any, schema: str) -> None:
    """Another worker takes this one for dead."""
    connection.execute(
        f'update "{schema}"._private_workers set last_heartbeat_at = now() - %s where id = %s'.encode(),
        [timedelta(hours=1), worker.worker_id],
    )
    by.recovery.skips_watching = True
    by.recovery.step()


class TestALostLease:
    @pytest.mark.parametrize("fails", [False, True], ids=["success", "failure"])
    @pytest.mark.parametrize("queue_name", [None, "q"], ids=["no queue", "queue"])
    def test_a_late_result_does_not_touch_the_next_claim_of_the_same_process(
        self,
        runner: Build,
        wait_until: Wait,
        raw_connection: Callable[..., Any],
        worker_schema: str,
        fails: bool,
        queue_name: str | None,
    ) -> None:
        job_id = make_job("gated", queue_name=queue_name)
        worker, other = runner(concurrency=2), runner(tasks=["collect"])
        worker.fetcher.step()
        assert gates.begun.acquire(timeout=WAIT_TIMEOUT)
        recover_from(worker, other, raw_connection(), worker_schema)
        assert Job.objects.get().locked_by is None
        worker.heartbeat.step()
        worker.fetcher.step()
        assert gates.begun.acquire(timeout=WAIT_TIMEOUT)
        (before,) = Job.objects.values()
        assert (before["attempts"], before["locked_by"]) == (1, worker.worker_id)
        gates.end(0, fails=fails)
        wait_until(lambda: worker.releaser.pending_count > 0)
        wait_until(lambda: worker.pool.running() == 1)
        worker.releaser.step()
        assert list(Job.objects.values()) == [before]
        if queue_name:
            assert JobQueue.objects.get().locked_by == worker.worker_id
        gates.end(1)
        wait_until(lambda: worker.pool.is_idle)
        worker.releaser.step()
        assert not Job.objects.filter(pk=job_id).exists()
        assert not JobQueue.objects.exclude(locked_by=None).exists()

    def test_a_job_of_an_earlier_lease_is_not_begun(self, runner: Build) -> None:
        make_job("collect")
        worker = runner()
        (claim,) = worker.claimer.claim(max_jobs=1, max_per_queue=1).claims
        assert worker.may_begin(claim)
        worker.lease_lost()
        assert not worker.may_begin(claim)

    def test_jobs_that_had_not_begun_are_not_reported_as_lost(
        self, runner: Build, raw_connection: Callable[..., Any], worker_schema: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """There are up to thousands of them, and nothing was lost with them."""
        for _ in range(5):
            make_job("gated")
        worker = runner(concurrency=1)
        expect_jobs_of(0.001, worker)
        worker.fetcher.step()
        assert gates.begun.acquire(timeout=WAIT_TIMEOUT)
        raw_connection().execute(f"update \"{worker_schema}\"._private_jobs set locked_by = 'worker-node'".encode())
        raw_connection().execute(f'delete from "{worker_schema}"._private_workers'.encode())
        worker.heartbeat.step()
        worker.releaser.step()
        worker.signal_sender.step()
        assert worker.releaser.pending_count == 0
        assert "no longer claimed by this worker" not in caplog.text


class TestCancelledJobs:
    @pytest.fixture
    def claimed_ahead(self, runner: Build) -> DatabaseWorker:
        """A worker that has claimed a keyed batch and not begun it; then the batch is added to."""
        add_job("collect", [1, 2, 3], job_key="batch", max_attempts=1)
        worker = runner()
        self.claims = worker.claimer.claim(max_jobs=1, max_per_queue=1).claims
        add_job("collect", [4], job_key="batch", max_attempts=1)
        return worker

    def run_all(self, worker: DatabaseWorker, wait_until: Wait) -> list[Any]:
        while Job.objects.filter(locked_by=None).exists():
            worker.fetcher.step()
            wait_until(lambda: worker.pool.is_idle)
            worker.releaser.step()
        return sorted(item for batch in ran for item in batch)

    def test_a_batch_that_goes_back_unbegun_is_run(
        self, claimed_ahead: DatabaseWorker, runner: Build, wait_until: Wait
    ) -> None:
        claimed_ahead.return_jobs(list(to_work_units(self.claims)))
        claimed_ahead.releaser.step()
        assert self.run_all(runner(), wait_until) == [1, 2, 3, 4]

    def test_a_batch_whose_worker_died_is_run(
        self,
        claimed_ahead: DatabaseWorker,
        runner: Build,
        wait_until: Wait,
        raw_connection: Callable[..., Any],
        worker_schema: str,
    ) -> None:
        heir = runner()
        recover_from(claimed_ahead, heir, raw_connection(), worker_schema)
        assert self.run_all(heir, wait_until) == [1, 2, 3, 4]

    def test_a_job_that_is_removed_while_it_runs_and_is_then_interrupted_is_gone(self, runner: Build) -> None:
        add_job("gated", {}, job_key="k", max_attempts=2)
        stepped = runner.runner(grace_period=0)
        worker = stepped.worker
        worker.releaser.start()
        worker.fetcher.step()
        assert gates.begun.acquire(timeout=WAIT_TIMEOUT)
        remove_job("k")
        stepped.shutdown("test")
        assert not Job.objects.exists()

    def test_a_deduplicated_add_costs_a_running_job_nothing(self, runner: Build) -> None:
        add_job("gated", {}, job_key="k", max_attempts=1)
        stepped = runner.runner(grace_period=0)
        worker = stepped.worker
        worker.releaser.start()
        worker.fetcher.step()
        assert gates.begun.acquire(timeout=WAIT_TIMEOUT)
        add_job("gated", {}, job_key="k", job_key_mode="unsafe_dedupe", max_attempts=1)
        stepped.shutdown("test")
        (job,) = Job.objects.all()
        assert (job.attempts, job.is_available, job.key) == (0, True, "k")
