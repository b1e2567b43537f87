"""Time limits in a real worker: blocked tasks, their connections, their neighbours and their transactions."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.utils import timezone

from django_graphile_worker import TaskTimeout, Worker, add_job, signals, task
from django_graphile_worker.models import Job
from django_graphile_worker.worker.control import run_stops
from django_graphile_worker.worker.execution.job_run import ActiveRunStop
from tests.conftest import WAIT_TIMEOUT
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]
LIMIT = 0.2


class Blocked:
    """The tasks that block, and what ends them at the end of the test."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.ours, self.theirs = socket.socketpair()
        self.may_end = threading.Event()

    def close(self) -> None:
        self.lock.release()
        self.ours.close()
        self.theirs.close()
        self.may_end.set()

    def in_a_query(self, payload: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("select pg_sleep(60)")

    def in_queries_for_ever(self, payload: Any) -> None:
        while True:
            try:
                self.in_a_query(payload)
            except Exception:
                continue

    def in_a_socket(self, payload: Any) -> None:
        self.theirs.recv(1)

    def in_a_lock(self, payload: Any) -> None:
        with self.lock:
            pass

    def in_a_loop(self, payload: Any) -> None:
        while True:
            try:
                raise ValueError
            except Exception:
                continue

    async def in_an_await(self, payload: Any) -> None:
        await asyncio.Event().wait()

    async def in_an_awaited_query(self, payload: Any) -> None:
        await sync_to_async(self.in_a_query)(payload)

    def in_an_atomic_query(self, payload: Any) -> None:
        Group.objects.create(name="atomic query")
        self.in_a_query(payload)

    def in_an_atomic_wait(self, payload: Any) -> None:
        Group.objects.create(name="atomic wait")
        self.lock.acquire()


@pytest.fixture
def blocked() -> Iterator[Blocked]:
    blocked = Blocked()
    yield blocked
    blocked.close()


def test_every_blocked_task__fails_with_a_timeout(blocked: Blocked, wait_until: Wait) -> None:
    shapes = {
        "in_a_query": "cursor.execute",
        "in_queries_for_ever": "cursor.execute",
        "in_a_socket": "self.theirs.recv",
        "in_a_lock": "with self.lock",
        "in_a_loop": "in_a_loop",
        "in_an_await": "asyncio.Event().wait()",
        "in_an_awaited_query": "cursor.execute",
        "in_an_atomic_query": "cursor.execute",
        "in_an_atomic_wait": "self.lock.acquire()",
    }
    neighbours: list[int] = []

    def neighbour(payload: int) -> None:
        assert blocked.may_end.wait(WAIT_TIMEOUT)
        neighbours.append(payload)

    with own_tasks():
        for name in shapes:
            # All have opened their connections by then.
            task(name, timeout=10 * LIMIT, atomic="atomic" in name)(getattr(blocked, name))
        task(neighbour)
        with Worker(concurrency=len(shapes) + 3, stop_grace=0.4):
            for number in range(3):
                add_job("neighbour", number)
            jobs = {add_job(name, max_attempts=1).id: name for name in shapes}
            wait_until(lambda: Job.objects.filter(pk__in=jobs, last_error__isnull=False).count() == len(jobs))
            blocked.may_end.set()
            wait_until(lambda: len(neighbours) == 3)
    for job in Job.objects.filter(pk__in=jobs):
        where = job.last_error.partition("At the deadline the task was here:")[2].partition("Traceback")[0]
        assert job.last_error.startswith("django_graphile_worker.exceptions.TaskTimeout: the task ran longer than")
        assert shapes[jobs[job.id]] in where, jobs[job.id]
        assert (job.attempts, job.locked_by) == (1, None)
    assert Group.objects.count() == 0, "atomic tasks are rolled back"


def test_the_next_job_of_the_thread__finds_clean_connections(blocked: Blocked, wait_until: Wait) -> None:
    found: list[Any] = []

    def looks(payload: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from auth_group")
            found.append((connection.in_atomic_block, cursor.fetchone()))

    with own_tasks():
        task("in_an_atomic_query", timeout=LIMIT, atomic=True)(blocked.in_an_atomic_query)
        task("in_queries_for_ever", timeout=LIMIT)(blocked.in_queries_for_ever)
        task(looks)
        with Worker(concurrency=1, stop_grace=5.0):
            for name in ("in_an_atomic_query", "looks", "in_queries_for_ever", "looks"):
                add_job(name, max_attempts=1)
            wait_until(lambda: len(found) == 2)
    assert found == [(False, (0,)), (False, (0,))]
    assert Job.objects.filter(last_error__contains="TaskTimeout").count() == 2


def test_a_timeout__is_a_failed_attempt_and_is_retried(blocked: Blocked, wait_until: Wait) -> None:
    failures: list[dict[str, Any]] = []

    def note(**arguments: Any) -> None:
        failures.append(arguments)

    signals.job_failed.connect(note)
    try:
        with own_tasks():
            task("in_an_await", timeout=LIMIT, backoff=timedelta(minutes=1))(blocked.in_an_await)
            with Worker(concurrency=1, stop_grace=5.0):
                job = add_job("in_an_await")
                wait_until(lambda: failures)
                wait_until(lambda: Job.objects.get(pk=job.id).locked_by is None)
    finally:
        signals.job_failed.disconnect(note)
    (failure,) = failures
    assert isinstance(failure["error"], TaskTimeout)
    assert str(failure["error"]) == "the task ran longer than its time limit of 200 ms"
    assert failure["retry_in"] > 0
    failed = Job.objects.get(pk=job.id)
    assert failed.attempts == 1
    assert failed.run_at > job.run_at


def test_a_thread_that_is_left_behind__gives_its_slot_and_its_queue_to_the_next_job(
    blocked: Blocked, wait_until: Wait
) -> None:
    left: list[Any] = []
    done: list[Any] = []

    def note(*, job: Any, **about: Any) -> None:
        left.append(job.task_identifier)

    signals.thread_left_behind.connect(note)
    try:
        with own_tasks():
            task("in_a_lock", timeout=LIMIT)(blocked.in_a_lock)
            task("next")(done.append)
            with Worker(concurrency=1, stop_grace=0.2):
                add_job("in_a_lock", queue_name="serial", max_attempts=1)
                for number in range(3):
                    add_job("next", number, queue_name="serial")
                wait_until(lambda: len(done) == 3)
    finally:
        signals.thread_left_behind.disconnect(note)
    assert (left, done) == (["in_a_lock"], [0, 1, 2])
    assert Job.objects.count() == 1


def test_the_commit_of_an_atomic_task__is_not_interrupted(wait_until: Wait, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task ends while a step of its stop is under way, which has seen the task at work."""
    may_end, is_committed, is_stepped = threading.Event(), threading.Event(), threading.Event()
    ran: list[str] = []

    def first_hook() -> None:
        is_committed.set()
        is_stepped.wait(WAIT_TIMEOUT)
        ran.append("first")

    def late(payload: Any) -> None:
        transaction.on_commit(first_hook)
        transaction.on_commit(lambda: ran.append("second"))
        Group.objects.create(name="late")
        may_end.wait(WAIT_TIMEOUT)

    def slow_stack_text(position: Any) -> str:
        may_end.set()
        # The commit waits for the step.
        is_committed.wait(1)
        return "here"

    def raise_in(stopping: ActiveRunStop, thread_id: int) -> None:
        real_raise_in(stopping, thread_id)
        is_stepped.set()

    real_raise_in = ActiveRunStop.raise_in
    monkeypatch.setattr(run_stops, "stack_text", slow_stack_text)
    monkeypatch.setattr(ActiveRunStop, "raise_in", raise_in)
    # The task has inserted its row by then.
    with own_tasks(late, timeout=5 * LIMIT, atomic=True), Worker(concurrency=1):
        add_job("late", {})
        wait_until(lambda: is_stepped.is_set() and not Job.objects.filter(locked_at__isnull=False).exists())
        wait_until(lambda: Job.objects.filter(last_error__isnull=False).exists() or ran)
    # Both are right: it has committed, or it was stopped.
    is_kept = Group.objects.filter(name="late").exists()
    assert ran == (["first", "second"] if is_kept else [])
    assert Job.objects.count() == (0 if is_kept else 1)


def test_deadline__is_known_to_the_task(wait_until: Wait) -> None:
    seen: list[Any] = []

    def looks(payload: Any, helpers: Any) -> None:
        seen.append(helpers.deadline)

    async def looks_async(payload: Any, helpers: Any) -> None:
        seen.append(helpers.deadline)

    with own_tasks():
        task(looks)
        task(looks_async)
        task("unlimited", timeout=False)(looks)
        before = timezone.now()
        with Worker(concurrency=1, timeout=100.0):
            for name in ("looks", "looks_async", "unlimited"):
                add_job(name)
            wait_until(lambda: len(seen) == 3)
    first, second, third = seen
    for deadline in (first, second):
        assert timedelta(seconds=99) < deadline - before < timedelta(seconds=100) + (timezone.now() - before)
    assert third is None
