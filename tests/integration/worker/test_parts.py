"""The parts of a worker, stepped one by one on a real database."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.test import override_settings

from django_graphile_worker import add_job, probe, signals
from django_graphile_worker.exceptions import GraphileWorkerError, SchemaError, WorkerDiedError
from django_graphile_worker.models import Job, JobQueue
from django_graphile_worker.sql import workers
from django_graphile_worker.sql.claims import Claimed
from django_graphile_worker.sql.install import indexes
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.database.watchdog import Watchdog
from django_graphile_worker.worker.fetching import fetcher as fetching
from django_graphile_worker.worker.fetching import prefetch
from django_graphile_worker.worker.fetching.listener import Listener, announces_jobs
from django_graphile_worker.worker.process.health_file import HealthFile, kept_up
from django_graphile_worker.worker.runner import never
from tests.conftest import PATIENCE
from tests.integration.worker.parts import Build, Gate, SteppedRunner, build, own_tasks, stepped_runners
from tests.support.factories import make_job, make_queue, minutes_ago

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
    with stepped_runners(quick, failing, slow) as make:
        yield make
        gate.may_end.set()


def run_all(runner: SteppedRunner, wait_until: Wait) -> None:
    """Claim and release until nothing is left to do."""
    while True:
        was_quiet = runner.slots.is_idle and runner.releaser.in_hand == 0
        runner.fetcher.step()
        wait_until(lambda: runner.slots.is_idle)
        runner.releaser.step()
        if was_quiet and runner.fetcher.last_claim_was_empty:
            return


class TestFetcher:
    def test_claims_no_more_than_the_slots_before_it_knows_how_long_jobs_take(self, runner: Build) -> None:
        for _ in range(10):
            make_job("slow")
        worker = runner(concurrency=3)
        assert worker.fetcher.step() == 0.0
        assert Job.objects.filter(locked_by=worker.worker_id).count() == 3

    def test_claims_ahead_once_jobs_turn_out_short(self, runner: Build, wait_until: Wait) -> None:
        for number in range(300):
            make_job("quick", {"n": number})
        worker = runner(concurrency=2, local_queue_size=50)
        worker.fetcher.step()
        wait_until(lambda: worker.slots.is_idle)
        worker.fetcher.step()
        assert worker.fetcher._pace.ahead(50) > 0
        run_all(worker, wait_until)
        assert sorted(ran) == list(range(300))
        assert not Job.objects.exists()

    def test_never_claims_ahead_of_long_jobs(self, runner: Build) -> None:
        worker = runner()
        worker.slots._finished[0], worker.slots._busy_seconds[0] = 10, 10.0
        assert worker.fetcher._pace.ahead(1000) == 0
        assert worker.fetcher._pace.stretch(1000) == 1

    def test_large_payloads_are_not_hoarded(self, runner: Build) -> None:
        worker = runner()
        worker.slots._finished[0], worker.slots._busy_seconds[0] = 1000, 0.01
        worker.fetcher._pace._size = prefetch.BYTES_AHEAD // 10
        assert worker.fetcher._pace.ahead(1000) == 10

    @pytest.mark.parametrize("queue_name", [None, "q"])
    def test_large_payloads_behind_small_ones_are_not_hoarded(
        self, runner: Build, wait_until: Wait, monkeypatch: pytest.MonkeyPatch, queue_name: str | None
    ) -> None:
        monkeypatch.setattr(prefetch, "BYTES_AHEAD", 20_000)
        worker = runner(concurrency=2, local_queue_size=500)
        for number in range(10):
            make_job("quick", {"n": number})
        run_all(worker, wait_until)
        assert worker.fetcher._pace.ahead(500) > 100
        assert worker.fetcher._pace.stretch(500) > 100
        for _ in range(40):
            make_job("slow", {"x": "y" * 4000}, queue_name=queue_name)
        worker.fetcher.step()
        assert 0 < worker.slots.waiting_size <= 20_000 + 2 * 5000
        held = Job.objects.filter(locked_by__startswith=worker.worker_id).count()
        assert held <= 4 + 2

    def test_resumes_behind_the_last_job_without_a_queue(self, runner: Build) -> None:
        """Where the claimed jobs of a queue end says nothing of the jobs without one."""
        worker = runner()
        queued = [make_job("quick", queue_name="q", run_at=minutes_ago(minute)) for minute in (60, 20)]
        plain = [make_job("quick", run_at=minutes_ago(minute)) for minute in (50, 40, 30)]
        other = make_job("quick", flags={"f": True}, run_at=minutes_ago(30))
        claimed = worker.claimer(max_jobs=3, max_queues=3, stretch=3)
        assert [claim.id for claim in claimed.claims] == [queued[0], *plain[:2]]
        assert claimed.has_more
        resume_after = worker.claimer._resume_after()
        assert resume_after is not None
        assert resume_after.id == plain[1]
        claimed = worker.claimer(max_jobs=4, max_queues=4, stretch=3)
        assert [claim.id for claim in claimed.claims] == [plain[2], other]

    def test_resumes_nowhere_behind_the_last_job_of_a_queue(self, runner: Build) -> None:
        worker = runner()
        first, second = (make_job("quick", queue_name="q", run_at=minutes_ago(minute)) for minute in (60, 1))
        claimed = worker.claimer(max_jobs=2, max_queues=2, stretch=2)
        assert [claim.id for claim in claimed.claims] == [first, second]
        older = make_job("quick", run_at=minutes_ago(30))
        assert [claim.id for claim in worker.claimer(max_jobs=2, max_queues=2, stretch=2).claims] == [older]

    def test_learns_at_a_glance_when_the_next_job_falls_due(self, runner: Build, wait_until: Wait) -> None:
        worker = runner(poll_interval=600)
        worker.fetcher._poll_interval = 600.0
        run_all(worker, wait_until)
        make_job("quick", {"n": 1})
        make_job("quick", {"n": 2}, run_at=minutes_ago(-2))
        worker.claimer._glancer._is_promising = True
        worker.fetcher.wake()
        worker.fetcher.round()
        wait_until(lambda: ran == [1])
        assert worker.fetcher.round() <= 120

    def test_sleeps_until_the_next_job_is_due(self, runner: Build) -> None:
        worker = runner(poll_interval=80)
        # Who listens looks every ten seconds, whatever the interval.
        worker.fetcher._poll_interval = 80.0
        assert 70 < worker.fetcher.step() <= 80
        make_job("quick", run_at=minutes_ago(-1))
        assert 0 < worker.fetcher.step() <= 60

    def test_a_retry_is_awaited(self, runner: Build, wait_until: Wait) -> None:
        make_job("failing")
        worker = runner(poll_interval=30)
        worker.fetcher._poll_interval = 30.0
        worker.fetcher.step()
        wait_until(lambda: worker.slots.is_idle)
        worker.releaser.step()
        # Somewhat less by now, on a slow machine nothing.
        assert 0 <= worker.fetcher.step() <= math.e

    def test_gives_back_what_waits_too_long_for_a_slot(self, runner: Build, wait_until: Wait) -> None:
        for _ in range(4):
            make_job("slow")
        worker = runner(concurrency=1, local_queue_size=10)
        worker.slots._finished[0], worker.slots._busy_seconds[0] = 0, 0.0
        worker.fetcher._pace._seconds = 0.001
        worker.fetcher.step()
        assert gate.has_begun.acquire(timeout=PATIENCE)
        assert Job.objects.filter(locked_by=worker.worker_id).count() == 4
        wait_until(lambda: worker.slots._line[-1].submitted_at < time.monotonic() - fetching.PATIENCE)
        worker.fetcher.step()
        worker.releaser.step()
        assert Job.objects.filter(locked_by=worker.worker_id).count() == 1
        assert sorted(Job.objects.values_list("attempts", flat=True)) == [0, 0, 0, 1]

    def test_claims_nothing_without_the_lease(self, runner: Build) -> None:
        make_job("quick")
        worker = runner()
        worker.heartbeat._last_beat = -math.inf
        worker.fetcher.step()
        assert Job.objects.get().locked_by is None

    def test_forbidden_flags_may_be_asked_for_asynchronously(self, runner: Build, wait_until: Wait) -> None:
        async def forbidden() -> list[str]:
            return ["heavy"]

        make_job("quick", {"n": 1}, flags={"heavy": True})
        make_job("quick", {"n": 2})
        run_all(runner(forbidden_flags=forbidden), wait_until)
        assert ran == [2]

    def test_only_the_chosen_tasks_run(self, runner: Build, wait_until: Wait) -> None:
        make_job("quick", {"n": 1})
        make_job("failing")
        run_all(runner(tasks=["q*", "failing"], exclude_tasks=["f*"]), wait_until)
        assert ran == [1]
        assert Job.objects.get().attempts == 0

    def test_a_task_name_that_was_cleaned_away_is_found_again(
        self, runner: Build, wait_until: Wait, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        worker = runner()
        raw_connection().execute(f'delete from "{worker_schema}"._private_tasks'.encode())
        add_job("quick", {"n": 7})
        worker.claimer._reviewed_at = -math.inf
        run_all(worker, wait_until)
        assert ran == [7]

    def test_jobs_before_the_place_of_resumption_are_not_forgotten(self, runner: Build, wait_until: Wait) -> None:
        for number in range(20):
            make_job("quick", {"n": number})
        worker = runner(concurrency=5)
        worker.fetcher.step()
        make_job("quick", {"n": 99}, run_at=minutes_ago(60))
        wait_until(lambda: worker.slots.is_idle)
        run_all(worker, wait_until)
        assert sorted(ran) == [*range(20), 99]


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
        worker.slots._finished[0], worker.slots._busy_seconds[0] = 0, 0.0
        worker.fetcher._pace._seconds = 0.001
        worker.fetcher.step()
        assert gate.has_begun.acquire(timeout=PATIENCE)
        assert worker.slots.backlog > 0
        raw_connection().execute(f'delete from "{worker_schema}"._private_workers'.encode())
        # Whatever the fetcher is busy with meanwhile.
        worker.heartbeat.step()
        assert worker.slots.backlog == 0
        gate.may_end.set()
        assert not gate.has_begun.acquire(timeout=0)

    @pytest.mark.parametrize("way", ["_claim", "_glancer"])
    def test_what_was_claimed_while_the_lease_was_lost_is_not_begun(
        self, runner: Build, monkeypatch: pytest.MonkeyPatch, wait_until: Wait, way: str
    ) -> None:
        worker = runner()
        run_all(worker, wait_until)
        worker.claimer._glancer._is_promising = way == "_glancer"
        make_job("quick", {"n": 1})
        take = getattr(worker.claimer, way)
        taken: list[Any] = []

        def take_and_lose(*arguments: Any, **options: Any) -> Any:
            taken.append(take(*arguments, **options))
            worker._lose_lease()
            return taken[-1]

        monkeypatch.setattr(worker.claimer, way, take_and_lose)
        if way == "_glancer":
            take_and_lose.learn_from = take.learn_from  # type: ignore[attr-defined]
            monkeypatch.setattr(
                worker.claimer, "_claim", lambda **limits: Claimed(claims=[], seconds_until_next=None, has_more=False)
            )
        worker.fetcher.step()
        wait_until(lambda: worker.slots.is_idle)
        assert taken
        assert ran == []


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


class TestListener:
    @pytest.fixture
    def stepped(self, runner: Build) -> SteppedRunner:
        return runner()

    @pytest.fixture
    def listener(self, stepped: SteppedRunner) -> Listener:
        assert stepped.listener is not None
        return stepped.listener

    def test_looks_once_for_what_came_before_it_listened(self, listener: Listener) -> None:
        assert listener.wait(PATIENCE, unless=never)
        assert not listener.wait(0, unless=never)

    def test_hears_of_jobs_and_proves_itself(self, stepped: SteppedRunner, listener: Listener) -> None:
        listener.wait(0, unless=never)
        assert not listener.wait(0.01, unless=never)
        assert stepped.heartbeat.was_woken()
        assert not listener.is_healthy
        stepped.heartbeat.step()
        add_job("quick")
        assert listener.wait(PATIENCE, unless=never)
        assert listener.is_healthy

    def test_what_a_claim_brings_along_is_no_proof(self, stepped: SteppedRunner, listener: Listener) -> None:
        listener.wait(0, unless=never)
        listener.wait(0.01, unless=never)
        stepped.heartbeat.forget_wake()
        stepped.heartbeat.step()
        stepped.claimer(max_jobs=1, max_queues=1, stretch=1)
        assert not listener.is_healthy
        # It asks again.
        listener.wait(0.01, unless=never)
        assert stepped.heartbeat.was_woken()

    def test_what_arrives_during_a_claim_is_not_lost(self, stepped: SteppedRunner, listener: Listener) -> None:
        listener.wait(0, unless=never)
        add_job("quick", run_at=timedelta(seconds=9))
        assert not stepped.claimer(max_jobs=1, max_queues=1, stretch=1).claims
        assert listener.wait(PATIENCE, unless=never)

    def test_a_call_ends_the_wait(self, listener: Listener, wait_until: Wait) -> None:
        listener.wait(0, unless=never)
        has_news = []
        waiting = threading.Thread(target=lambda: has_news.append(listener.wait(PATIENCE, unless=never)))
        waiting.start()
        wait_until(lambda: listener._bell._is_waiting)
        listener.interrupt()
        waiting.join(PATIENCE)
        assert has_news == [False]

    def test_a_call_before_the_wait_counts(self, listener: Listener) -> None:
        listener.wait(0, unless=never)
        assert not listener.wait(60, unless=lambda: True)

    def test_a_connection_that_was_replaced_listens_again(self, stepped: SteppedRunner, listener: Listener) -> None:
        listener.wait(0, unless=never)
        stepped.claimer.close()
        assert listener.wait(0, unless=never)
        add_job("quick")
        assert listener.wait(PATIENCE, unless=never)

    def test_a_worker_with_a_new_id_listens_to_its_own_channel(
        self, stepped: SteppedRunner, listener: Listener
    ) -> None:
        listener.wait(0, unless=never)
        before = listener._connection
        stepped.worker_id = "django-worker-anew"
        stepped.heartbeat.register()
        assert listener.wait(0, unless=never)
        assert listener._connection is not before
        stepped.heartbeat.step()
        add_job("quick")
        assert listener.wait(PATIENCE, unless=never)
        assert listener.is_healthy

    def test_silence_is_a_loss(self, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [0.0]
        lost: list[Exception] = []
        listener._clock = lambda: now[0]
        listener._on_lost = lambda error, delay: lost.append(error)
        listener.wait(0, unless=never)
        listener.is_healthy = True
        listener._silence = 24.99

        def wait(seconds: float, *, unless: Any) -> bool:
            now[0] += seconds
            return False

        monkeypatch.setattr(listener._bell, "wait", wait)
        listener.wait(1, unless=never)
        assert not listener.is_healthy
        assert "heard none" in str(lost[0])
        # It tries again when it said it would, and polls until then.
        assert not listener.wait(0, unless=never)
        now[0] += 1
        assert listener.wait(0, unless=never)

    def test_a_process_that_did_not_run_asks_for_proof_instead_of_blaming_a_pooler(
        self, stepped: SteppedRunner, listener: Listener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A suspended laptop, a virtual machine that was paused, SIGSTOP: its heartbeat slept as well."""
        now, pauses = [0.0], [3600.0]
        lost: list[Exception] = []
        listener._clock = lambda: now[0]
        listener._on_lost = lambda error, delay: lost.append(error)
        listener.wait(0, unless=never)
        listener.is_healthy = True
        listener._must_ask = False

        def wait(seconds: float, *, unless: Any) -> bool:
            now[0] += seconds + (pauses.pop() if pauses else 0.0)
            return False

        monkeypatch.setattr(listener._bell, "wait", wait)
        listener.wait(1, unless=never)
        assert lost == []
        assert not stepped.heartbeat.was_woken()
        listener.wait(1, unless=never)
        assert stepped.heartbeat.was_woken()
        # Silence after that is silence.
        listener.wait(30, unless=never)
        assert "heard none" in str(lost[0])

    @pytest.mark.parametrize(
        ("payload", "is_about_jobs"),
        [('{"r":0.1,"count":2}', True), ('{"count":-1}', False), ('{"count":0}', False), ("", True), ("[]", True)],
    )
    def test_understands_the_original_s_payloads(self, payload: str, is_about_jobs: bool) -> None:
        assert announces_jobs(payload) is is_about_jobs


class TestDatabase:
    def test_a_statement_past_its_deadline_is_cancelled(self, runner: Build) -> None:
        settings = runner().settings.replace(statement_timeout=1.0)
        database = Database("default", settings, part="test")
        with pytest.raises(psycopg.OperationalError), database.cursor() as cursor:
            # The server has been told as well: this is about who looks at the clock here.
            cursor.execute("set statement_timeout = 0")
            cursor.execute("select pg_sleep(200)")
        with database.cursor() as cursor:
            assert cursor.execute("select 1").fetchone() == (1,)
        database.close()

    def test_what_cannot_be_cancelled_is_cut(self, runner: Build) -> None:
        worker = runner()
        database = Database("default", worker.settings, part="test")
        now = [0.0]
        watchdog = Watchdog(clock=lambda: now[0])
        connection = database.connection()
        with watchdog.watch(connection, 1.0):
            now[0] = 2.0
            watchdog.bark()
            watchdog.bark()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("select 1")
        database.close()

    def test_a_read_only_server_is_left(self, runner: Build) -> None:
        worker = runner()
        database = Database("default", worker.settings, part="test")
        with database.cursor() as cursor:
            cursor.execute("set default_transaction_read_only = on")
        first = database.connection()
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), database.cursor() as cursor:
            cursor.execute("create table somewhere (id int)")
        assert database.connection() is not first
        database.close()


class TestStarting:
    @override_settings(GRAPHILE_WORKER={"SCHEMA": "nowhere"})
    def test_says_what_to_do_without_a_schema(self) -> None:
        with own_tasks(quick) as registry:
            worker = build(registry)
            with pytest.raises(SchemaError, match=r"manage\.py migrate graphile_worker"):
                worker.prepare()
            worker.close()


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
