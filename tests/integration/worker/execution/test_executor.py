"""Rows that Python cannot hold, and jobs of async tasks without a thread.

A row that PostgreSQL can hold and Python cannot fails alone, and its failure can be stored. Jobs of async tasks that a
worker runs without a thread: their threads, their ORM, their stop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from django_graphile_worker import Worker, add_job, cancel_jobs, signals, task
from django_graphile_worker.models import Job
from django_graphile_worker.sql.claims import Claim, claim_jobs
from django_graphile_worker.sql.releases import Failure, complete_jobs, fail_jobs
from django_graphile_worker.worker.execution.event_loop import EventLoop
from django_graphile_worker.worker.outcomes import Failed, Outcome, Succeeded
from tests.conftest import WAIT_TIMEOUT, RawConnection
from tests.support.backends import execute
from tests.support.factories import TOO_DEEP, make_task
from tests.support.slot import TOKEN, Slot
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db(transaction=True)

UNREADABLE = {
    "deep": f"'{TOO_DEEP}'",
    "long integer": "repeat('9', 5000)",
    "long integer in an array": "'[' || repeat('9', 5000) || ', 1]'",
}
READABLE = {
    "escaped NUL": r"""'"\u0000"'""",
    "half a surrogate pair": r"""'"\ud800"'""",
    "beyond float": "'1e400'",
    "same key twice": """'{"a": 1, "a": 2}'""",
    "null": "'null'",
    "scalar": "'1'",
    "white space": """E' \\n{"a": 1}\\t '""",
}


class Queue:
    """The jobs of one task: inserted by SQL, claimed, run and released like a worker's."""

    def __init__(self, slot: Slot, database: RawConnection, schema: str) -> None:
        self.slot = slot
        self.database = database
        self.schema = schema
        self.task_id = make_task("a_task")

    def insert(self, payload: str = "'{}'", run_at: str = "now()") -> int:
        row = self.database.execute(
            f'insert into "{self.schema}"._private_jobs (task_id, payload, run_at)'
            f" values ({self.task_id}, ({payload})::json, {run_at}) returning id".encode()
        ).fetchone()
        assert row is not None
        return int(row[0])

    def run(self, function: Callable[..., Any]) -> dict[int, Outcome]:
        """Claim all that is there, run each, and store how it ended."""
        with self.database.cursor() as cursor:
            claimed = claim_jobs(
                cursor,
                schema=self.schema,
                token=TOKEN,
                task_ids=[self.task_id],
                max_jobs=100,
                max_per_queue=1,
            )
            outcomes = {claim.id: self._run(claim, function) for claim in claimed.claims}
            done = [outcome.claim for outcome in outcomes.values() if isinstance(outcome, Succeeded)]
            failures = [
                Failure(
                    claim=outcome.claim,
                    error=outcome.error,
                    delay=outcome.delay,
                    permanent=outcome.permanent,
                    payload_text=outcome.payload_text,
                )
                for outcome in outcomes.values()
                if isinstance(outcome, Failed)
            ]
            gone = complete_jobs(cursor, done, schema=self.schema)
            kept = fail_jobs(cursor, failures, schema=self.schema)
        assert {*gone, *kept} == set(outcomes)
        return outcomes

    def _run(self, claim: Claim, function: Callable[..., Any]) -> Outcome:
        return self.slot.start_claim(claim._replace(task_id=self.slot.task_id(function))).result(30)

    def last_error(self, job_id: int) -> str:
        row = self.database.execute(
            f'select last_error from "{self.schema}"._private_jobs where id = %s and locked_by is null', [job_id]
        ).fetchone()
        assert row is not None
        return str(row[0])

    def payload(self, job_id: int) -> str:
        row = self.database.execute(
            f'select payload::text from "{self.schema}"._private_jobs where id = %s', [job_id]
        ).fetchone()
        assert row is not None
        return str(row[0])


@pytest.fixture
def queue(slot: Slot, raw_connection: Callable[..., RawConnection], worker_schema: str) -> Queue:
    return Queue(slot, raw_connection(), worker_schema)


def test_unreadable_payloads__fail_alone(queue: Queue) -> None:
    bad = [queue.insert(payload) for payload in UNREADABLE.values()]
    good = [queue.insert(payload) for payload in READABLE.values()]
    outcomes = queue.run(lambda payload: None)
    assert {job_id for job_id, outcome in outcomes.items() if isinstance(outcome, Failed)} == set(bad)
    assert {job_id for job_id, outcome in outcomes.items() if isinstance(outcome, Succeeded)} == set(good)
    for job_id in bad:
        assert "Error" in queue.last_error(job_id)


@pytest.mark.parametrize("run_at", ["'-infinity'", "'4713-01-01 BC'", "'0001-01-01'"])
def test_moments_before_the_calendar__are_run(queue: Queue, run_at: str) -> None:
    years: list[int] = []
    job_id = queue.insert(run_at=run_at)
    outcomes = queue.run(lambda payload, helpers: years.append(helpers.job.run_at.year))
    assert isinstance(outcomes[job_id], Succeeded)
    assert years == [1]


@pytest.mark.parametrize(
    "message",
    [
        "a\x00b",
        "\ud800\udfff",
        "x" * 5_000_000,
        "\x1b[31mred",
        "\u202etfel",
        "",
        "\U0001f600" * 99_999,
        "\x00" * 99_999,
    ],
    ids=["NUL", "surrogates", "huge", "ANSI", "right to left", "empty", "astral", "many NULs"],
)
def test_whatever_an_error_says__it_can_be_stored(queue: Queue, message: str) -> None:
    def breaks(payload: Any) -> None:
        raise ValueError(message)

    job_id = queue.insert()
    queue.run(breaks)
    stored = queue.last_error(job_id)
    assert stored.startswith("ValueError")
    assert len(stored) <= 65_536


def test_failed_items__are_stored_as_they_were_written(queue: Queue) -> None:
    job_id = queue.insert(r"""'[1.10, "\u0000", {"b":1,"a":2}, """ + "9" * 400 + "]'")
    queue.run(lambda payload: [ValueError("one"), ValueError("two"), None, ValueError("four")])
    assert queue.payload(job_id) == r'[1.10,"\u0000",' + "9" * 400 + "]"


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
