"""Pauses, on a worker whose parts the test steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker import RetryLater, models, pause, pauses, resume, signals
from django_graphile_worker.worker.database_worker import DatabaseWorker
from tests.conftest import WAIT_TIMEOUT
from tests.support.factories import make_job, make_queue
from tests.support.rows import query
from tests.support.stepped_worker import Build, Gate, expect_jobs_of, run_all, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]


@pytest.fixture
def ran() -> list[Any]:
    """The payloads of the jobs that have run, in order."""
    return []


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def runner(ran: list[Any], gate: Gate) -> Iterator[Build]:
    def quick(payload: Any) -> None:
        ran.append(payload.get("n"))

    def other(payload: Any) -> None:
        ran.append(payload.get("n"))

    def slow(payload: Any) -> None:
        gate(payload)

    def limited(payload: Any) -> None:
        ran.append(payload.get("n"))
        raise RetryLater(payload.get("delay", 60), "429 Too Many Requests", pause_queue=True)

    with stepped_workers(quick, other, slow, limited) as make:
        yield make
        gate.may_end.set()
        for made in make.made:
            made.worker.pause_endings.stop()
            assert made.worker.pause_endings.join(WAIT_TIMEOUT)


def read(worker: DatabaseWorker) -> None:
    """Read what is asked of the worker, as its heartbeat does."""
    worker.control_reader.read(worker.claim_database)


def unlocked() -> bool:
    return bool(models.JobQueue.objects.get(queue_name="mail").is_available)


def test_paused_task__is_claimed_by_neither_claim_until_it_is_resumed(
    runner: Build, wait_until: Wait, ran: list[Any]
) -> None:
    worker = runner()
    pause(task="quick")
    read(worker)
    make_job("quick", {"n": 1})
    assert worker.fast_path.start_due_jobs() is None
    make_job("other", {"n": 2})
    run_all(worker, wait_until)
    assert ran == [2]
    assert resume(task="quick") is not None
    read(worker)
    run_all(worker, wait_until)
    assert ran == [2, 1]


def test_paused_flag__joins_the_forbidden_flags(runner: Build, wait_until: Wait, ran: list[Any]) -> None:
    worker = runner(forbidden_flags=("never",))
    pause(flag="bulk")
    read(worker)
    make_job("quick", {"n": 1}, flags={"bulk": True})
    make_job("quick", {"n": 2}, flags={"never": True})
    make_job("quick", {"n": 3}, flags={"fine": True})
    run_all(worker, wait_until)
    assert ran == [3]
    resume(flag="bulk")
    read(worker)
    run_all(worker, wait_until)
    assert ran == [3, 1]


def test_started_worker__knows_the_pauses_before_its_first_claim(
    runner: Build, wait_until: Wait, ran: list[Any]
) -> None:
    make_job("quick", {"n": 1})
    pause(task="quick")
    worker = runner()
    run_all(worker, wait_until)
    assert ran == []


@pytest.mark.parametrize("what", ["task", "flag", "queue"])
def test_job_that_was_claimed_before_the_pause__is_returned_and_does_not_begin(
    runner: Build, wait_until: Wait, gate: Gate, ran: list[Any], what: str
) -> None:
    """With one slot, the second job waits in the worker while the first runs."""
    worker = runner(concurrency=1, local_queue_size=10)
    make_queue("mail")
    make_job("slow", queue_name="mail" if what == "queue" else None)
    waiting = make_job("quick", {"n": 1}, flags={"bulk": True}, queue_name="mail" if what == "queue" else None)
    expect_jobs_of(0.001, worker)
    worker.fetcher.step()
    assert gate.has_begun.acquire(timeout=WAIT_TIMEOUT)
    assert models.Job.objects.get(pk=waiting).locked_at is not None
    target: dict[str, Any] = {what: {"task": "quick", "flag": "bulk", "queue": "mail"}[what]}
    pause(**target)
    read(worker)
    gate.may_end.set()
    wait_until(lambda: worker.pool.is_idle)
    worker.releaser.step()
    run_all(worker, wait_until)
    assert ran == []
    row = models.Job.objects.get(pk=waiting)
    assert (row.locked_at, row.attempts) == (None, 0)


def test_paused_queue__is_not_claimed_and_its_running_job_finishes(
    runner: Build, wait_until: Wait, gate: Gate, ran: list[Any]
) -> None:
    worker = runner()
    make_job("slow", queue_name="mail")
    worker.fetcher.step()
    assert gate.has_begun.acquire(timeout=WAIT_TIMEOUT)
    pause(queue="mail")
    make_job("quick", {"n": 1}, queue_name="mail")
    gate.may_end.set()
    wait_until(lambda: worker.pool.is_idle)
    run_all(worker, wait_until)
    assert ran == []
    assert not unlocked()
    resume(queue="mail")
    run_all(worker, wait_until)
    assert ran == [1]
    assert unlocked()


def test_pause_with_an_end__is_ended_by_the_worker(runner: Build, wait_until: Wait, ran: list[Any]) -> None:
    heard: list[Any] = []
    make_job("quick", {"n": 1}, queue_name="mail")
    # One time for both: the heartbeat, which plans the next end, does not run here.
    until = datetime.now(UTC) + timedelta(seconds=2)
    pause(queue="mail", until=until, reason="provider")
    pause(task="other", until=until)
    worker = runner()
    make_job("other", {"n": 2})
    with _heard(signals.work_resumed, heard):
        wait_until(lambda: not pauses())
        while len(heard) < 2:
            wait_until(lambda: worker.signal_sender.has_queued)
            worker.signal_sender.step()
    wait_until(worker.heartbeat.was_woken)
    read(worker)
    run_all(worker, wait_until)
    assert sorted(ran) == [1, 2]
    assert {(each["kind"], each["name"], each["reason"]) for each in heard} == {
        ("queue", "mail", "provider"),
        ("task", "other", ""),
    }
    assert {each["worker_id"] for each in heard} == {worker.worker_id}


def test_paused_queue_that_was_unlocked_by_hand__is_locked_again_and_its_jobs_do_not_begin(
    runner: Build, wait_until: Wait, ran: list[Any], worker_schema: str
) -> None:
    make_job("quick", {"n": 1}, queue_name="mail")
    pause(queue="mail")
    worker = runner()
    query(f'update "{worker_schema}"._private_job_queues set locked_by = null, locked_at = null returning id')
    worker.fetcher.step()
    wait_until(lambda: worker.pool.is_idle)
    worker.releaser.step()
    assert ran == []
    assert worker.heartbeat.was_woken()
    read(worker)
    wait_until(lambda: not unlocked())


def test_heartbeat__reads_pauses_where_no_notification_arrives(runner: Build) -> None:
    worker = runner()
    pause(task="quick")
    worker.heartbeat.wake()
    worker.heartbeat.round()
    assert worker.pauses.tasks == {"quick"}


class TestPausingTheOwnQueue:
    def test_queue_is_paused_until_the_retry(self, runner: Build, wait_until: Wait, ran: list[Any]) -> None:
        heard: list[Any] = []
        worker = runner(concurrency=1, local_queue_size=10)
        expect_jobs_of(0.001, worker)
        first = make_job("limited", {"n": 1}, queue_name="mail")
        second = make_job("limited", {"n": 2}, queue_name="mail")
        make_job("quick", {"n": 3}, queue_name="other")
        with _heard(signals.work_paused, heard):
            run_all(worker, wait_until)
            while worker.signal_sender.has_queued:
                worker.signal_sender.step()
        assert sorted(ran) == [1, 3]
        (paused,) = pauses()
        assert (paused.kind, paused.name, paused.reason) == ("queue", "mail", "429 Too Many Requests")
        assert paused.by == f"job {first}"
        row = models.Job.objects.get(pk=first)
        assert abs(paused.until - row.run_at) < timedelta(seconds=5)
        assert models.Job.objects.get(pk=second).attempts == 0
        assert [(each["name"], each["worker_id"]) for each in heard] == [("mail", worker.worker_id)]

    def test_pause_of_an_operator_is_not_shortened(self, runner: Build, wait_until: Wait, gate: Gate) -> None:
        worker = runner()
        make_job("limited", {"delay": 1}, queue_name="mail")
        pause(queue="mail", reason="audit")
        resume(queue="mail")
        worker.fetcher.step()
        wait_until(lambda: worker.pool.is_idle)
        pause(queue="mail", reason="audit")
        worker.releaser.step()
        (paused,) = pauses()
        assert (paused.reason, paused.until) == ("audit", None)

    def test_lost_claim_pauses_nothing(self, runner: Build, wait_until: Wait, worker_schema: str) -> None:
        worker = runner()
        make_job("limited", {}, queue_name="mail")
        worker.fetcher.step()
        wait_until(lambda: worker.pool.is_idle)
        query(f"update \"{worker_schema}\"._private_jobs set locked_by = 'another' returning id")
        worker.releaser.step()
        assert pauses() == []


class _heard:  # noqa: N801 - used as a function
    """Collects the arguments of a signal."""

    def __init__(self, signal: signals.NamedSignal, into: list[Any]) -> None:
        self._signal, self._into = signal, into

    def _receive(self, **arguments: Any) -> None:
        self._into.append(arguments)

    def __enter__(self) -> None:
        self._signal.connect(self._receive)

    def __exit__(self, *exception: object) -> None:
        self._signal.disconnect(self._receive)
