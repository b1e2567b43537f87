"""The parts of a worker, stepped one by one on a real database."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from django_graphile_worker import probe, signals
from django_graphile_worker.exceptions import GraphileWorkerError, WorkerDiedError
from django_graphile_worker.models import Job, JobQueue
from django_graphile_worker.sql import workers
from django_graphile_worker.sql.install import indexes
from django_graphile_worker.worker.process.health_file import HealthFile, kept_up
from tests.conftest import PATIENCE
from tests.support.factories import make_job, make_queue, minutes_ago
from tests.support.stepped_worker import Build, Gate, run_all, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]

OTHER = "django-worker-other/1"

ran: list[Any] = []


def quick(payload: Any) -> None:
    ran.append(payload.get("n"))


def failing(payload: Any) -> None:
    raise ValueError("It does not work")


gate = Gate()


def slow(payload: Any) -> None:
    gate(payload)


@pytest.fixture
def runner() -> Iterator[Build]:
    ran.clear()
    gate.__init__()  # type: ignore[misc]
    with stepped_workers(quick, failing, slow) as make:
        yield make
        gate.may_end.set()


class TestReleaser:
    def test_a_failure_keeps_its_error(self, runner: Build, wait_until: Wait) -> None:
        make_job("failing")
        run_all(runner(), wait_until)
        job = Job.objects.get()
        assert job.last_error is not None
        assert "It does not work" in job.last_error
        assert (job.attempts, job.locked_by) == (1, None)

    def test_one_that_the_database_refuses_keeps_no_other(
        self, runner: Build, wait_until: Wait, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        stubborn = make_job("quick", {"n": 0})
        for number in range(1, 6):
            make_job("quick", {"n": number})
        connection = raw_connection()
        connection.execute(
            f"""create function "{worker_schema}".refuse() returns trigger language plpgsql as $$
            begin if old.id = {stubborn} then raise exception 'not this one'; end if; return old; end $$;
            create trigger refuse before delete on "{worker_schema}"._private_jobs
            for each row execute function "{worker_schema}".refuse()""".encode()
        )
        try:
            worker = runner()
            worker.fetcher.step()
            wait_until(lambda: worker.slots.is_idle)
            worker.releaser.step()
            assert list(Job.objects.values_list("id", flat=True)) == [stubborn]
            assert worker.releaser.in_hand == 1
        finally:
            connection.execute(f'drop function "{worker_schema}".refuse() cascade'.encode())
        worker.releaser._refused._clock = lambda: math.inf
        worker.releaser.step()
        assert not Job.objects.exists()
        assert worker.releaser.in_hand == 0

    def test_a_row_that_the_site_is_changing_holds_nobody_up(
        self, runner: Build, wait_until: Wait, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        held = make_job("quick", {"n": 0})
        make_job("quick", {"n": 1})
        worker = runner()
        worker.fetcher.step()
        wait_until(lambda: worker.slots.is_idle)
        other = raw_connection(autocommit=False)
        other.execute(f'select from "{worker_schema}"._private_jobs where id = {held} for update'.encode())
        assert worker.releaser.step() > 0
        assert list(Job.objects.values_list("id", flat=True)) == [held]
        other.rollback()
        worker.releaser.step()
        assert not Job.objects.exists()

    def test_a_lost_claim_is_told_once_and_changes_nothing(
        self, runner: Build, wait_until: Wait, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        make_job("quick", {"n": 1})
        worker = runner()
        lost: list[Any] = []

        def hear(job: Any, **kwargs: Any) -> None:
            lost.append(job.id)

        signals.claim_lost.connect(hear)
        worker.fetcher.step()
        wait_until(lambda: worker.slots.is_idle)
        job_id = Job.objects.get().id
        raw_connection().execute(f'update "{worker_schema}"._private_jobs set locked_by = %s'.encode(), [OTHER])
        worker.releaser.step()
        worker.announcer.step()
        signals.claim_lost.disconnect(hear)
        assert lost == [job_id]
        assert Job.objects.get().locked_by == "django-worker-other"
        assert worker.releaser.in_hand == 0

    def test_survives_its_connection_and_is_not_fooled_by_what_it_did_before(
        self, runner: Build, wait_until: Wait, raw_connection: Callable[..., Any]
    ) -> None:
        for number in range(3):
            make_job("quick", {"n": number})
        worker = runner()
        worker.fetcher.step()
        wait_until(lambda: worker.slots.is_idle)
        database = worker.releaser._settlement._ledger._database  # type: ignore[attr-defined]
        pid = database.connection().info.backend_pid
        raw_connection().execute("select pg_terminate_backend(%s)", [pid])
        with pytest.raises(psycopg.OperationalError):
            worker.releaser.step()
        assert worker.releaser.in_hand == 3
        worker.releaser.step()
        assert worker.releaser.in_hand == 0
        assert not Job.objects.exists()

    def test_frees_a_queue_after_its_last_job(self, runner: Build, wait_until: Wait) -> None:
        for number in range(5):
            make_job("quick", {"n": number}, queue_name="q")
        run_all(runner(), wait_until)
        assert ran == list(range(5))
        assert JobQueue.objects.get().locked_by is None


class TestHeartbeat:
    def test_registers_beats_and_leaves(
        self, runner: Build, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        connection = raw_connection()

        def registered() -> list[Any]:
            rows = connection.execute(f'select id, metadata from "{worker_schema}"._private_workers'.encode())
            return list(rows.fetchall())

        worker = runner(concurrency=4)
        ((worker_id, metadata),) = registered()
        assert worker_id == worker.worker_id
        assert metadata["concurrency"] == 4
        assert metadata["tasks"] == ["failing", "quick", "slow"]
        assert 0 < worker.heartbeat.step() <= worker.settings.heartbeat_interval
        worker.heartbeat.deregister()
        assert registered() == []

    def test_registering_was_a_beat_unless_somebody_calls_for_one(self, runner: Build) -> None:
        worker = runner()
        registered_at = worker.heartbeat._last_beat
        worker.heartbeat.was_called = False
        assert worker.heartbeat.step() > worker.settings.heartbeat_interval / 2
        assert worker.heartbeat._last_beat == registered_at
        worker.heartbeat.was_called = True
        worker.heartbeat.step()
        assert worker.heartbeat._last_beat > registered_at

    def test_a_worker_with_jobs_in_hand_does_not_leave(
        self, runner: Build, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        worker = runner()
        make_job("quick", locked_by=worker.worker_id)
        worker.heartbeat.deregister()
        rows = raw_connection().execute(f'select id from "{worker_schema}"._private_workers'.encode()).fetchall()
        assert rows == [(worker.worker_id,)]

    def test_a_forgotten_worker_comes_back_as_another(
        self, runner: Build, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        worker = runner()
        before = worker.worker_id
        raw_connection().execute(f'delete from "{worker_schema}"._private_workers'.encode())
        worker.heartbeat.step()
        assert worker.worker_id != before
        assert worker.worker_id.startswith(workers.WORKER_PREFIX)
        rows = raw_connection().execute(f'select id from "{worker_schema}"._private_workers'.encode()).fetchall()
        assert rows == [(worker.worker_id,)]

    def test_a_forgotten_worker_begins_nothing_that_it_had_claimed(
        self, runner: Build, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        for _ in range(4):
            make_job("slow")
        worker = runner(concurrency=1)
        worker.slots._totals.finished[0], worker.slots._totals.busy_seconds[0] = 0, 0.0
        worker.fetcher._prefetch._seconds = 0.001
        worker.fetcher.step()
        assert gate.has_begun.acquire(timeout=PATIENCE)
        assert worker.slots.backlog > 0
        raw_connection().execute(f'delete from "{worker_schema}"._private_workers'.encode())
        # Whatever the fetcher is busy with meanwhile.
        worker.heartbeat.step()
        assert worker.slots.backlog == 0
        gate.may_end.set()
        assert not gate.has_begun.acquire(timeout=0)


class TestRecovery:
    def test_frees_what_a_dead_worker_held_and_wakes_the_others(
        self, runner: Build, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        listener = raw_connection()
        listener.execute('listen "jobs:insert"')
        dead = f"{workers.WORKER_PREFIX}dead"
        with raw_connection().cursor() as cursor:
            workers.register_worker(cursor, dead, {}, schema=worker_schema, now=minutes_ago(10))
        make_job("quick", queue_name="q", locked_by=dead, attempts=1)
        make_queue("q", locked_by=dead)
        worker = runner()
        worker.recovery.judges_at_once = True
        worker.recovery.step()
        job = Job.objects.get()
        assert (job.locked_by, job.attempts, JobQueue.objects.get().locked_by) == (None, 0, None)
        assert [notice.channel for notice in listener.notifies(timeout=PATIENCE, stop_after=1)] == ["jobs:insert"]

    def test_tells_of_a_job_that_killed_its_last_worker(
        self, runner: Build, raw_connection: Callable[..., Any], worker_schema: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        dead = f"{workers.WORKER_PREFIX}dead"
        job_id = make_job("quick", locked_by=dead, attempts=1, max_attempts=1, last_error="It died.")
        with raw_connection().cursor() as cursor:
            workers.register_worker(cursor, dead, {}, schema=worker_schema, now=minutes_ago(10))
            cursor.execute(
                f'insert into "{worker_schema}"._private_job_recoveries (job_id, recoveries) values (%s, 2)'.encode(),
                [job_id],
            )
        worker = runner()
        worker.recovery.judges_at_once = True
        heard: list[dict[str, Any]] = []

        def hear(**kwargs: Any) -> None:
            heard.append(kwargs)

        signals.job_permanently_failed.connect(hear)
        worker.recovery.step()
        worker.announcer.step()
        (told,) = heard
        assert set(signals.job_permanently_failed.arguments) <= told.keys()
        assert (told["worker_id"], told["job"].id, told["job"].locked_by) == (worker.worker_id, job_id, dead)
        assert isinstance(told["error"], WorkerDiedError)
        (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert line.getMessage().startswith(f"quick #{job_id} permanently failed after ")
        assert f"WorkerDiedError: The worker {dead} died while it held this job (3 times" in line.getMessage()

    def test_tells_of_a_job_whose_last_attempt_a_stranger_took_away(
        self, runner: Build, caplog: pytest.LogCaptureFixture
    ) -> None:
        job_id = make_job(
            "quick",
            locked_by="worker-node",
            locked_at=minutes_ago(241),
            attempts=1,
            max_attempts=1,
            updated_at=minutes_ago(300),
        )
        worker = runner()
        worker.recovery.judges_at_once = True
        worker.recovery.step()
        worker.announcer.step()
        (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert line.getMessage().startswith(f"quick #{job_id} permanently failed after 4 h 1 min ")
        assert "WorkerDiedError: The worker worker-node had held this job for 4.0 hours" in line.getMessage()

    @pytest.fixture
    def lost_index(self, raw_connection: Callable[..., Any], worker_schema: str) -> Iterator[str]:
        """An index that is not there, until the end of the test."""
        index = indexes.indexes_of(indexes.FILES, schema=worker_schema)[0]
        connection = raw_connection()
        connection.execute(f'drop index "{worker_schema}".{index.name}'.encode())
        yield index.name
        connection.execute(index.statement.encode())

    def test_tells_once_and_not_at_first_that_an_index_is_missing(
        self, runner: Build, lost_index: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        worker = runner()
        worker.recovery.judges_at_once = True

        def sweep() -> list[str]:
            caplog.clear()
            worker.recovery.step()
            worker.announcer.step()
            return [record.getMessage() for record in caplog.records]

        # Where a run only drains, its first job waits for the one sweep.
        assert sweep() == []
        (line,) = sweep()
        assert f"(missing: {lost_index}; incomplete: none)" in line
        assert 'run "manage.py graphile_worker repair"' in line
        assert sweep() == []

    def test_is_silent_where_all_indexes_are_there(self, runner: Build, caplog: pytest.LogCaptureFixture) -> None:
        worker = runner()
        worker.recovery.judges_at_once = True
        for _ in range(3):
            worker.recovery.step()
        worker.announcer.step()
        assert caplog.records == []

    @pytest.mark.parametrize("hours", [-6, 6])
    def test_leases_go_by_the_database_s_clock_whatever_the_worker_s_own_says(
        self, runner: Build, raw_connection: Callable[..., Any], worker_schema: str, hours: int
    ) -> None:
        """Where the settings ask for it, jobs are due by the worker's clock. A lease never is."""
        worker = runner(use_local_time=True)
        worker.recovery._now = lambda: datetime.now(UTC) + timedelta(hours=hours)
        living, dead = f"{workers.WORKER_PREFIX}living", f"{workers.WORKER_PREFIX}dead"
        with raw_connection().cursor() as cursor:
            workers.register_worker(cursor, living, {}, schema=worker_schema)
            workers.register_worker(cursor, dead, {}, schema=worker_schema, now=minutes_ago(10))
        worker.recovery.judges_at_once = True
        worker.recovery.step()
        rows = raw_connection().execute(f'select id from "{worker_schema}"._private_workers'.encode()).fetchall()
        assert {row[0] for row in rows} == {living, worker.worker_id}

    def test_looks_again_within_a_quarter_of_the_timeout(self, runner: Build) -> None:
        assert 0 < runner().recovery.step() <= 15


def test_tasks_that_no_live_worker_has__are_told_once_by_name(runner: Build) -> None:
    told: list[tuple[str, ...]] = []

    def remember(identifiers: tuple[str, ...], **kwargs: Any) -> None:
        told.append(identifiers)

    signals.tasks_unserved.connect(remember)
    try:
        worker = runner()
        make_job("quick")
        make_job("typo")
        assert worker.unserved.step() == 15.0, "workers that start together have registered by then"
        for name in ("other", None, None):
            worker.unserved.step()
            worker.announcer.step()
            if name:
                make_job(name)
        assert told == [("typo",), ("other",)]
    finally:
        signals.tasks_unserved.disconnect(remember)


def test_a_part_whose_thread_died__makes_the_health_file_old(runner: Build, tmp_path: Path) -> None:
    worker = runner()
    health = HealthFile(tmp_path / "health", [worker])
    assert health.step() == 5.0
    assert probe.problems(str(tmp_path / "health"), must_be_ready=True) == []
    (tmp_path / "health").unlink()
    worker.heartbeat._thread = threading.Thread()
    assert worker.dead_parts() == ["heartbeat"]
    health.step()
    assert not (tmp_path / "health").exists()
    worker.heartbeat._thread = None


def test_a_health_file_that_cannot_be_written__is_told_at_the_start(runner: Build, tmp_path: Path) -> None:
    with pytest.raises(
        GraphileWorkerError, match=r"^--health-file: expected a file that can be written, got '.*/no/h'"
    ):
        with kept_up(tmp_path / "no" / "h", [runner()]):
            raise AssertionError("it must not begin")
