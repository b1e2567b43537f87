"""Jobs of async tasks that a worker runs without a thread: their threads, their ORM, their stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from django_graphile_worker import JobSpec, Worker, add_job, add_jobs, cancel_jobs, signals, task
from django_graphile_worker.models import Job
from django_graphile_worker.worker.execution.coroutines.event_loop import EventLoop
from tests.conftest import WAIT_TIMEOUT
from tests.support.backends import execute
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]
JOBS = 30
number: ContextVar[int] = ContextVar("number", default=0)


class Site:
    """Tasks that wait until the test says so, and what they saw."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self.seen: list[Any] = []

    async def waits(self, payload: Any) -> None:
        self.seen.append(number.get())
        number.set(1)
        event = asyncio.Event()
        self.waiting.append((asyncio.get_running_loop(), event))
        self.begun.release()
        await event.wait()

    async def queries(self, payload: Any) -> None:
        await self.waits(payload)
        self.seen.append([await sync_to_async(self.where)() for _ in range(3)])

    @staticmethod
    def where() -> tuple[int, Any]:
        return threading.get_ident(), execute("select pg_backend_pid()")

    def add(self, name: str, count: int) -> list[Any]:
        """Add jobs, and wait until all have begun."""
        jobs = [add_job(name, number) for number in range(count)]
        self.wait_for_begin(count)
        return jobs

    def wait_for_begin(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=WAIT_TIMEOUT)

    def let_end(self) -> None:
        for loop, event in self.waiting:
            loop.call_soon_threadsafe(event.set)


def slot_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("graphile-worker-slot")}


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()

    async def waits(payload: Any) -> None:
        await site.waits(payload)

    async def queries(payload: Any) -> None:
        await site.queries(payload)

    with own_tasks():
        task(waits)
        task(queries)
        yield site


def test_coroutines_that_only_await__have_no_threads(site: Site, wait_until: Wait) -> None:
    started: list[int] = []

    def note(*, job: Any, **more: Any) -> None:
        started.append(job.id)

    signals.job_started.connect(note)
    # Threads that tests of jobs which never end have left behind.
    of_others = slot_threads()
    try:
        with Worker(concurrency=JOBS):
            jobs = site.add("waits", JOBS)
            assert len(slot_threads() - of_others) < JOBS // 2
            site.let_end()
            wait_until(lambda: not Job.objects.exists())
    finally:
        signals.job_started.disconnect(note)
    assert sorted(started) == [job.id for job in jobs]
    assert site.seen == [0] * JOBS, "each job has a context of its own"


def test_first_jobs_of_a_task_that_has_a_backlog__have_no_threads(site: Site, wait_until: Wait) -> None:
    """Threads that were started for them would wait for Python's global lock as long as jobs wait."""
    add_jobs([JobSpec("waits", number) for number in range(JOBS)])
    of_others = slot_threads()
    with Worker(concurrency=JOBS):
        site.wait_for_begin(JOBS)
        assert len(slot_threads() - of_others) < JOBS // 2
        site.let_end()
        wait_until(lambda: not Job.objects.exists())


def test_synchronous_calls__run_on_one_thread_with_its_own_connection(site: Site, wait_until: Wait) -> None:
    with Worker(concurrency=3):
        site.add("queries", 3)
        site.let_end()
        wait_until(lambda: not Job.objects.exists())
    places = site.seen[3:]
    assert [len(set(calls)) for calls in places] == [1, 1, 1]


def test_cancelled_job__is_stopped(site: Site, wait_until: Wait) -> None:
    with Worker(concurrency=3):
        jobs = site.add("waits", 3)
        assert cancel_jobs([jobs[1].id]).stopping == (jobs[1].id,)
        wait_until(lambda: set(Job.objects.values_list("id", flat=True)) == {jobs[0].id, jobs[2].id})
        site.let_end()
        wait_until(lambda: not Job.objects.exists())


def test_jobs_of_a_worker_that_stops__are_returned(site: Site, wait_until: Wait) -> None:
    with Worker(concurrency=3, grace_period=0.0):
        jobs = site.add("waits", 3)
    assert list(Job.objects.order_by("id").values_list("id", "attempts", "locked_by")) == [
        (job.id, 0, None) for job in jobs
    ]


def test_report_of_progress__is_no_request_to_stop(monkeypatch: pytest.MonkeyPatch, wait_until: Wait) -> None:
    reported = threading.Event()
    aborts: list[bool] = []
    start = EventLoop.start

    def start_slowly(*arguments: Any) -> Any:
        """Return when the coroutine has reported: mostly the thread is as slow as that only now and then."""
        run = start(*arguments)
        assert reported.wait(WAIT_TIMEOUT)
        return run

    async def reports(payload: Any, helpers: Any) -> None:
        helpers.progress(1)
        reported.set()
        # On the thread that started the job, the only thread beside that of the fetcher.
        await sync_to_async(lambda: aborts.append(helpers.abort.is_set()))()

    monkeypatch.setattr(EventLoop, "start", start_slowly)
    with own_tasks():
        task(reports)
        with Worker(concurrency=1):
            for _ in range(3):
                reported.clear()
                add_job("reports")
                wait_until(lambda: not Job.objects.exists())
    assert aborts == [False] * 3
