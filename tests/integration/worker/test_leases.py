"""Leases that are lost and kept, and claims that belong to one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from django_graphile_worker import add_job, remove_job
from django_graphile_worker.models import Job, JobQueue
from django_graphile_worker.sql import recovery, workers
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.maintenance.heartbeat import deadline_of_beats
from django_graphile_worker.worker.work_units import to_work_units
from tests.conftest import PATIENCE
from tests.support.factories import make_job
from tests.support.stepped_worker import Build, SteppedRunner, stepped_workers

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
        assert may_end.wait(PATIENCE)
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


def recover_from(worker: SteppedRunner, by: SteppedRunner, connection: Any, schema: str) -> None:
    """Another worker takes this one for dead."""
    connection.execute(
        f'update "{schema}"._private_workers set last_heartbeat_at = now() - %s where id = %s'.encode(),
        [timedelta(hours=1), worker.worker_id],
    )
    by.recovery.judges_at_once = True
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
        assert gates.begun.acquire(timeout=PATIENCE)
        recover_from(worker, other, raw_connection(), worker_schema)
        assert Job.objects.get().locked_by is None
        worker.heartbeat.step()
        worker.fetcher.step()
        assert gates.begun.acquire(timeout=PATIENCE)
        (before,) = Job.objects.values()
        assert (before["attempts"], before["locked_by"]) == (1, worker.worker_id)
        gates.end(0, fails=fails)
        wait_until(lambda: worker.releaser.in_hand > 0)
        wait_until(lambda: worker.slots.running() == 1)
        worker.releaser.step()
        assert list(Job.objects.values()) == [before]
        if queue_name:
            assert JobQueue.objects.get().locked_by == worker.worker_id
        gates.end(1)
        wait_until(lambda: worker.slots.is_idle)
        worker.releaser.step()
        assert not Job.objects.filter(pk=job_id).exists()
        assert not JobQueue.objects.exclude(locked_by=None).exists()

    def test_a_job_of_an_earlier_lease_is_not_begun(self, runner: Build) -> None:
        make_job("collect")
        worker = runner()
        (claim,) = worker.claimer.claim(max_jobs=1, max_queues=1, max_per_queue=1).claims
        assert worker.may_begin(claim)
        worker._lose_lease()
        assert not worker.may_begin(claim)

    def test_jobs_that_had_not_begun_are_not_told_as_lost(
        self, runner: Build, raw_connection: Callable[..., Any], worker_schema: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """There are up to thousands of them, and nothing was lost with them."""
        for _ in range(5):
            make_job("gated")
        worker = runner(concurrency=1)
        worker.fetcher._prefetch._seconds = 0.001
        worker.fetcher.step()
        assert gates.begun.acquire(timeout=PATIENCE)
        raw_connection().execute(f"update \"{worker_schema}\"._private_jobs set locked_by = 'worker-node'".encode())
        raw_connection().execute(f'delete from "{worker_schema}"._private_workers'.encode())
        worker.heartbeat.step()
        worker.releaser.step()
        worker.announcer.step()
        assert worker.releaser.in_hand == 0
        assert "no longer claimed by this worker" not in caplog.text


class TestBeats:
    def test_a_worker_that_is_in_no_register_claims_nothing(
        self, runner: Build, monkeypatch: pytest.MonkeyPatch, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        """Somebody has deleted its row, and the database fails just when it enters the register anew."""
        worker = runner()
        raw_connection().execute(f'delete from "{worker_schema}"._private_workers'.encode())

        def fail(*arguments: Any, **options: Any) -> None:
            raise psycopg.OperationalError("the server went away")

        with monkeypatch.context() as patch:
            patch.setattr(workers, "register_worker", fail)
            worker.heartbeat.was_called = True
            with pytest.raises(psycopg.OperationalError):
                worker.heartbeat.step()
        assert not worker.heartbeat.holds_lease
        worker.heartbeat.step()
        assert worker.heartbeat.holds_lease

    def test_the_register_knows_what_the_worker_promised(
        self, runner: Build, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        runner(worker_timeout=40, heartbeat_interval=8)
        promise = f'select timeout_seconds, heartbeat_seconds from "{worker_schema}"._private_workers'
        assert raw_connection().execute(promise.encode()).fetchall() == [(40.0, 8.0)]

    @pytest.mark.parametrize(
        ("statement_timeout", "worker_timeout", "deadline"),
        [(30.0, 60.0, 15.0), (5.0, 60.0, 5.0), (4.5, 9.0, 2.25), (1.5, 3.0, 1.0), (0.15, 0.3, 0.1)],
    )
    def test_a_beat_leaves_time_for_others(
        self, statement_timeout: float, worker_timeout: float, deadline: float
    ) -> None:
        assert deadline_of_beats(statement_timeout, worker_timeout) == pytest.approx(deadline)

    def test_a_beat_that_hangs_is_given_up_while_the_lease_holds(
        self, runner: Build, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        worker = runner(worker_timeout=20, heartbeat_interval=5)
        assert worker.heartbeat._database.deadline == 5
        worker.heartbeat._database.deadline = 0.3
        site = raw_connection(autocommit=False)
        site.execute(f'select from "{worker_schema}"._private_workers for update'.encode())
        with pytest.raises(psycopg.Error):
            worker.heartbeat.step()
        assert worker.heartbeat.holds_lease
        site.rollback()
        worker.heartbeat.step()

    def test_a_full_queue_of_notifications_costs_no_beat(self, runner: Build, monkeypatch: pytest.MonkeyPatch) -> None:
        fails = "/* gw:proof */ select 1 / 0 from generate_series(1, 1) where %(channel)s::text is not null"
        monkeypatch.setattr(workers, "SEND_PROOF", fails)
        worker = runner()
        before = worker.heartbeat._last_beat
        worker.heartbeat.step()
        assert worker.heartbeat._last_beat > before
        assert worker.heartbeat.in_contact_since < before + PATIENCE


class TestQueues:
    def test_a_job_that_is_added_while_a_queue_is_being_released_is_seen(
        self, runner: Build, wait_until: Wait, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        """Its notification came while the queue was held: only the release can tell of it."""
        make_job("collect", queue_name="q")
        worker = runner()
        worker.fetcher.step()
        wait_until(lambda: worker.slots.is_idle)
        freed: list[set[int]] = []
        worker.releaser._settlement._on_queues_free = freed.append
        site, observer = raw_connection(autocommit=False), raw_connection()
        site.execute(f'select from "{worker_schema}"._private_job_queues for update'.encode())
        release = threading.Thread(target=worker.releaser.step)
        release.start()
        blocked = "select count(*) from pg_stat_activity where %s = any (pg_blocking_pids(pid))"
        wait_until(lambda: observer.execute(blocked, [site.info.backend_pid]).fetchone() == (1,))
        make_job("collect", queue_name="q")
        site.rollback()
        release.join(PATIENCE)
        assert len(freed) == 1


class TestCancelledJobs:
    @pytest.fixture
    def claimed_ahead(self, runner: Build) -> SteppedRunner:
        """A worker that has claimed a keyed batch and not begun it; then the batch is added to."""
        add_job("collect", [1, 2, 3], job_key="batch", max_attempts=1)
        worker = runner()
        self.claims = worker.claimer.claim(max_jobs=1, max_queues=1, max_per_queue=1).claims
        add_job("collect", [4], job_key="batch", max_attempts=1)
        return worker

    def run_all(self, worker: SteppedRunner, wait_until: Wait) -> list[Any]:
        while Job.objects.filter(locked_by=None).exists():
            worker.fetcher.step()
            wait_until(lambda: worker.slots.is_idle)
            worker.releaser.step()
        return sorted(item for batch in ran for item in batch)

    def test_a_batch_that_goes_back_unbegun_is_run(
        self, claimed_ahead: SteppedRunner, runner: Build, wait_until: Wait
    ) -> None:
        claimed_ahead.return_jobs(list(to_work_units(self.claims)))
        claimed_ahead.releaser.step()
        assert self.run_all(runner(), wait_until) == [1, 2, 3, 4]

    def test_a_batch_whose_worker_died_is_run(
        self,
        claimed_ahead: SteppedRunner,
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
        worker = runner(grace_period=0)
        worker.releaser.start()
        worker.fetcher.step()
        assert gates.begun.acquire(timeout=PATIENCE)
        remove_job("k")
        worker.shutdown("test")
        assert not Job.objects.exists()

    def test_a_deduplicated_add_costs_a_running_job_nothing(self, runner: Build) -> None:
        add_job("gated", {}, job_key="k", max_attempts=1)
        worker = runner(grace_period=0)
        worker.releaser.start()
        worker.fetcher.step()
        assert gates.begun.acquire(timeout=PATIENCE)
        add_job("gated", {}, job_key="k", job_key_mode="unsafe_dedupe", max_attempts=1)
        worker.shutdown("test")
        (job,) = Job.objects.all()
        assert (job.attempts, job.is_available, job.key) == (0, True, "k")


class TestSessions:
    def test_the_worker_s_own_sessions_find_no_objects_of_others_and_read_committed_rows(
        self, runner: Build, raw_connection: Callable[..., Any]
    ) -> None:
        owner = raw_connection()
        name = owner.info.dbname
        database = Database("default", runner().settings, part="test")
        owner.execute(f"alter database \"{name}\" set default_transaction_isolation = 'serializable'".encode())
        owner.execute(f'alter database "{name}" set search_path = public'.encode())
        try:
            with database.cursor() as cursor:
                shown = cursor.execute(
                    "select current_setting('search_path'), current_setting('transaction_isolation')"
                ).fetchone()
            assert shown == ("pg_catalog, pg_temp", "read committed")
        finally:
            owner.execute(f'alter database "{name}" reset default_transaction_isolation'.encode())
            owner.execute(f'alter database "{name}" reset search_path'.encode())
            database.close()

    def test_a_look_alike_in_a_schema_that_others_may_write_to_is_not_called(
        self, runner: Build, wait_until: Wait, raw_connection: Callable[..., Any]
    ) -> None:
        """It fits better than PostgreSQL's own, and would have the worker's rights."""
        planted = [
            "json_build_object(text, float8, text, int) returns json",
            "unnest(bigint[]) returns setof bigint",
        ]
        owner = raw_connection()
        for signature in planted:
            owner.execute(
                f"create function public.{signature} language plpgsql as"
                " $$ begin raise exception 'called'; end $$".encode()
            )
        try:
            for _ in range(2):
                make_job("collect", queue_name="q")
            worker = runner()
            for _ in range(3):
                worker.fetcher.step()
                wait_until(lambda: worker.slots.is_idle)
                worker.releaser.step()
            worker.heartbeat.step()
            worker.recovery.step()
            assert not Job.objects.exists()
        finally:
            for signature in planted:
                owner.execute(f"drop function public.{signature.partition(' returns')[0]}".encode())


def test_a_worker_with_a_short_timeout_does_not_judge_others_by_it(
    runner: Build, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    slow, quick = runner(worker_timeout=600), runner(worker_timeout=6, heartbeat_interval=2)
    connection = raw_connection()
    connection.execute(
        f'update "{worker_schema}"._private_workers set last_heartbeat_at = now() - %s where id = %s'.encode(),
        [timedelta(minutes=2), slow.worker_id],
    )
    quick.recovery.judges_at_once = True
    quick.recovery.step()
    with connection.cursor() as cursor:
        fleet = recovery.look_at_fleet(cursor, schema=worker_schema, timeout=6.0)
    assert (fleet.size, fleet.late) == (2, [])
