"""Jobs that are cancelled while a worker holds them: told by a notification, by a heartbeat, or not at all in time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_graphile_worker import ResultStatus, Worker, add_job, cancel_jobs, get_job, result, signals, task
from django_graphile_worker.models import Job, JobQueue
from django_graphile_worker.sql.control import CONTROL_CHANNEL
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.pool.line import line_up
from django_graphile_worker.worker.release.statements import ReleaseStatements
from tests.conftest import WAIT_TIMEOUT
from tests.support import records
from tests.support.factories import make_job
from tests.support.rows import in_quotes, query
from tests.support.stepped_worker import Build, Gate, beat_of, own_tasks, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]
Told = list[dict[str, Any]]


@pytest.fixture
def told() -> Iterator[Told]:
    """The arguments of every signal about a cancelled job, in order."""
    received: Told = []

    def receiver(**arguments: Any) -> None:
        received.append(arguments)

    for signal in (signals.job_cancelled, signals.cancellation_missed):
        signal.connect(receiver)
    yield received
    for signal in (signals.job_cancelled, signals.cancellation_missed):
        signal.disconnect(receiver)


class TestAWorkerThatRuns:
    """With its threads, as a process has them."""

    @pytest.fixture
    def begun(self) -> Iterator[threading.Semaphore]:
        has_begun = threading.Semaphore(0)

        async def awaiting(payload: Any) -> None:
            has_begun.release()
            await asyncio.sleep(600)

        def querying(payload: Any) -> None:
            has_begun.release()
            with connection.cursor() as cursor:
                cursor.execute("select pg_sleep(600)")

        def swallowing(payload: Any) -> None:
            has_begun.release()
            while True:
                try:
                    threading.Event().wait(0.01)
                except Exception:
                    continue

        def quick(payload: Any) -> None:
            has_begun.release()

        with own_tasks(keep_result=3600):
            for function in (awaiting, querying, swallowing, quick):
                task(keep_result=3600)(function)
            yield has_begun

    def test_is_told_by_a_notification(
        self, begun: threading.Semaphore, told: Told, wait_until: Wait, worker_schema: str
    ) -> None:
        """Long before a heartbeat could tell it; and the next job of the queue runs."""
        with Worker(concurrency=3, heartbeat_interval=600, worker_timeout=3600):
            jobs = [add_job(name, queue_name=name) for name in ("awaiting", "querying", "swallowing")]
            for _ in jobs:
                assert begun.acquire(timeout=WAIT_TIMEOUT)
            for job in jobs:
                assert cancel_jobs([job.id], reason="sent twice", by="maria").stopping == (job.id,)
            wait_until(lambda: not Job.objects.exists())
            for job in jobs:
                add_job("quick", queue_name=job.queue_name)
                assert begun.acquire(timeout=WAIT_TIMEOUT)
        assert sorted(each["job"].id for each in told) == [job.id for job in jobs]
        assert {(each["reason"], each["cancelled_by"]) for each in told} == {("sent twice", "maria")}
        assert all(each["worker_id"] and each["duration"] > 0 for each in told)
        found = [result(job.id) for job in jobs]
        assert {each and (each.status, each.cancelled_by, len(each.attempts)) for each in found} == {
            (ResultStatus.CANCELLED, "maria", 1)
        }
        assert query(f"select 1 from {in_quotes(worker_schema)}._private_stop_requests") == []

    def test_is_told_by_a_heartbeat_where_notifications_do_not_arrive(
        self, begun: threading.Semaphore, told: Told, wait_until: Wait
    ) -> None:
        with Worker(concurrency=1, listen=False, poll_interval=0.1, heartbeat_interval=0.1, worker_timeout=60):
            job = add_job("awaiting")
            assert begun.acquire(timeout=WAIT_TIMEOUT)
            cancel_jobs([job.id])
            wait_until(lambda: get_job(job.id) is None)
        assert [each["job"].id for each in told] == [job.id]


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def ran() -> list[int]:
    return []


@pytest.fixture
def runner(gate: Gate, ran: list[int]) -> Iterator[Build]:
    def slow(payload: Any) -> None:
        gate(payload)

    def quick(payload: Any) -> None:
        ran.append(payload["n"])

    def failing(payload: Any) -> None:
        raise ValueError("It does not work")

    with stepped_workers(slow, quick, failing) as make:
        yield make
        gate.may_end.set()


def claimed_ahead(worker: DatabaseWorker, gate: Gate) -> tuple[int, int]:
    """Have the worker run a job of a queue, with the next job of the queue claimed; return their ids."""
    first = make_job("slow", queue_name="q")
    second = make_job("quick", {"n": 2}, queue_name="q")
    claims = worker.claimer.claim(max_jobs=2, max_per_queue=2).claims
    assert [claim.id for claim in claims] == [first, second]
    worker.pool.submit(line_up(claims), callers=1)
    assert gate.has_begun.acquire(timeout=WAIT_TIMEOUT)
    return first, second


def settle(worker: DatabaseWorker, wait_until: Wait) -> None:
    wait_until(lambda: worker.pool.is_idle)
    worker.releaser.step()
    worker.signal_sender.step()


class TestBetweenClaimAndStart:
    """Mutant: a cancel that is lost between claim and start."""

    def test_a_job_never_begins(
        self, runner: Build, gate: Gate, ran: list[int], told: Told, wait_until: Wait, worker_schema: str
    ) -> None:
        worker = runner(concurrency=1, history=3600.0)
        _, second = claimed_ahead(worker, gate)
        assert cancel_jobs([second], by="maria").stopping == (second,)
        worker.heartbeat.read_control_soon()
        worker.heartbeat.round()
        gate.may_end.set()
        settle(worker, wait_until)
        assert ran == []
        assert not Job.objects.exists()
        assert [(each["job"].id, each["duration"], each["cancelled_by"]) for each in told] == [(second, None, "maria")]
        assert [row.outcome for row in records.history(worker_schema)] == [1, 8]
        assert JobQueue.objects.get().locked_by is None

    def test_a_claim_whose_answer_is_under_way_never_begins(
        self, runner: Build, ran: list[int], wait_until: Wait
    ) -> None:
        """The worker reads the request before it knows that it has claimed the job."""
        worker = runner(concurrency=1)
        job_id = make_job("quick", {"n": 1})
        claims = worker.claimer.claim(max_jobs=1, max_per_queue=1).claims
        cancel_jobs([job_id])
        worker.control_reader.read(worker.claim_database)
        worker.pool.submit(line_up(claims), callers=1)
        settle(worker, wait_until)
        assert ran == []
        assert not Job.objects.exists()


class TestARunThatEndsByItself:
    """Before the worker is told: the notification was lost, and the next heartbeat is seconds away."""

    def test_with_success__has_succeeded(
        self, runner: Build, gate: Gate, told: Told, wait_until: Wait, worker_schema: str
    ) -> None:
        worker = runner(concurrency=1, history=3600.0)
        job_id = make_job("slow")
        worker.fetcher.step()
        assert gate.has_begun.acquire(timeout=WAIT_TIMEOUT)
        cancel_jobs([job_id], reason="sent twice", by="maria")
        gate.may_end.set()
        settle(worker, wait_until)
        assert [row.outcome for row in records.history(worker_schema)] == [1]
        worker.heartbeat.step()
        worker.heartbeat.step()
        worker.signal_sender.step()
        (missed,) = told
        assert (missed["signal"], missed["job_id"]) == (signals.cancellation_missed, job_id)
        assert (missed["reason"], missed["cancelled_by"]) == ("sent twice", "maria")

    def test_with_an_error__is_cancelled(
        self, runner: Build, told: Told, wait_until: Wait, worker_schema: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error is kept, and the job is neither retried nor among the failed jobs."""
        worker = runner(concurrency=1, history=3600.0, keep_results=3600.0)
        job_id = make_job("failing")
        worker.fetcher.step()
        wait_until(lambda: worker.pool.is_idle)
        cancel_jobs([job_id], by="maria")
        settle(worker, wait_until)
        assert not Job.objects.exists()
        assert [each["job"].id for each in told] == [job_id]
        (row,) = records.history(worker_schema)
        assert row.outcome == 8
        assert row.error.startswith("Cancelled by maria.\n")
        assert "It does not work" in row.error
        assert records.results(worker_schema)[job_id].status == 4


class TestTrouble:
    def test_an_answer_that_was_lost_is_no_lost_cancellation(
        self, runner: Build, gate: Gate, told: Told, wait_until: Wait, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The statement that ended the claim was committed, and its connection broke before the answer."""
        worker = runner(concurrency=1)
        _, second = claimed_ahead(worker, gate)
        cancel_jobs([second])
        worker.control_reader.read(worker.claim_database)
        end_cancelled = ReleaseStatements.end_cancelled

        def end_and_break(*arguments: Any) -> Any:
            end_cancelled(*arguments)
            raise psycopg.OperationalError("the connection broke")

        gate.may_end.set()
        wait_until(lambda: worker.pool.is_idle)
        with monkeypatch.context() as patched, pytest.raises(psycopg.OperationalError):
            patched.setattr(ReleaseStatements, "end_cancelled", end_and_break)
            worker.releaser.step()
        assert told == []
        settle(worker, wait_until)
        assert [each["job"].id for each in told] == [second]


class TestNotifications:
    @pytest.fixture
    def reads(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        noted: list[str] = []
        monkeypatch.setattr(
            "django_graphile_worker.worker.control.control_reader.ControlReader.read",
            lambda self, database, proof_channel=None: noted.append(database.schema),
        )
        return noted

    def test_have_the_heartbeat_read_without_a_beat(
        self, runner: Build, reads: list[str], raw_connection: Callable[..., Any], worker_schema: str, wait_until: Wait
    ) -> None:
        # Without NOTIFY, the listener requests no proof, for which the heartbeat would beat.
        worker = runner(notify=False)
        # The worker reads once before its first claim.
        reads.clear()
        assert worker.listener is not None
        worker.listener.wait(0, unless=lambda: False)
        worker.heartbeat.step()
        beaten = beat_of(worker)
        assert reads == [worker_schema]
        sender = raw_connection()
        sender.execute("select pg_notify(%s, 'another schema')", [CONTROL_CHANNEL])
        sender.execute("select pg_notify('jobs:insert', '{\"count\": 1}')")
        assert worker.listener.wait(WAIT_TIMEOUT, unless=lambda: False)
        assert not worker.heartbeat.was_woken()
        sender.execute("select pg_notify(%s, %s)", [CONTROL_CHANNEL, worker_schema])
        wait_until(lambda: worker.listener.wait(0.05, unless=lambda: False) or worker.heartbeat.was_woken())
        delay = worker.heartbeat.round()
        assert reads == [worker_schema] * 2
        assert beat_of(worker) == beaten
        assert 0 < delay <= worker.settings.heartbeat_interval

    def test_do_not_put_off_a_beat_that_is_due_or_asked_for(self, runner: Build, reads: list[str]) -> None:
        worker = runner()
        reads.clear()
        beaten = beat_of(worker)
        worker.heartbeat.read_control_soon()
        worker.heartbeat.wake()
        worker.heartbeat.round()
        assert beat_of(worker) > beaten
        beaten = beat_of(worker)
        worker.heartbeat._last_beat -= worker.settings.heartbeat_interval
        worker.heartbeat.read_control_soon()
        worker.heartbeat.round()
        assert beat_of(worker) > beaten
        assert len(reads) == 2
