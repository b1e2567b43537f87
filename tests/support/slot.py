"""A slot of a worker: an executor, and the thread on which it runs jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

from django_graphile_worker import conf
from django_graphile_worker.jobs import JobDefaults
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.execution.executor import Executor
from django_graphile_worker.worker.execution.helpers import DirectReports
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.outcomes import Failed, Outcome

WORKER_ID = "django-worker-of-the-test"
TOKEN = f"{WORKER_ID}/1"
DEADLINE = 30.0


def make_claim(payload_text: str = "{}", **columns: Any) -> Claim:
    """Return a claim on the first attempt of a job that is in no table."""
    claim = Claim(
        id=1,
        task_id=1,
        attempts=1,
        payload_text=payload_text,
        queue_id=None,
        priority=0,
        run_at_epoch=1_700_000_000.0,
        max_attempts=25,
        key=None,
        revision=0,
        flags_text=None,
        last_error=None,
        created_at_epoch=1_700_000_000.0,
        updated_at_epoch=1_700_000_000.0,
        queue_name=None,
        token=TOKEN,
    )
    return claim._replace(**columns)


def make_task(function: Callable[..., Any], **options: Any) -> Task[Any, Any]:
    """Return a task that is in no registry."""
    return Task(function, "a_task", defaults=JobDefaults(), **options)


class Slot:
    """An executor and a thread, which run functions as jobs."""

    def __init__(self, **settings: Any) -> None:
        self._tasks: dict[int, Task[Any, Any]] = {}
        self._ids: dict[Any, int] = {}
        self.executor = Executor(self._worker(conf.current().replace(**settings)))
        self.executor.start()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="slot")

    def _worker(self, settings: conf.Settings) -> DatabaseWorker:
        """Return a worker of which only the executor is real: nothing stops runs, and no job is claimed."""
        worker = SimpleNamespace(
            settings=settings,
            place=SimpleNamespace(using="default", installation=conf.DEFAULT, settings=settings),
            tasks={},
            # Tasks, which may expire, are found while it runs.
            directory=SimpleNamespace(task_of=self._tasks.get, finds_tasks=True),
            progress=DirectReports(using="default", schema=settings.schema),
            run_stops=None,
            server_time=time.time,
            queue_paused_by=lambda claim: None,
        )
        return cast("DatabaseWorker", worker)

    def start(self, function: Callable[..., Any], payload_text: str = "{}", **columns: Any) -> Future[Outcome]:
        """Start a job of this function or task."""
        claim = make_claim(payload_text, task_id=self.task_id(function), **columns)
        return self.start_claim(claim)

    def start_claim(self, claim: Claim) -> Future[Outcome]:
        return self._thread.submit(self.executor.run, claim)

    def run(self, function: Callable[..., Any], payload_text: str = "{}", **columns: Any) -> Outcome:
        return self.start(function, payload_text, **columns).result(DEADLINE)

    def failure(self, function: Callable[..., Any], payload_text: str = "{}", **columns: Any) -> Failed:
        """Run a job that is expected to fail."""
        outcome = self.run(function, payload_text, **columns)
        assert isinstance(outcome, Failed), outcome
        return outcome

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function on the thread of the slot, outside any job."""
        return self._thread.submit(function).result(DEADLINE)

    def task_id(self, function: Callable[..., Any]) -> int:
        if function not in self._ids:
            task = function if isinstance(function, Task) else make_task(function)
            self._ids[function] = len(self._ids) + 1
            self._tasks[self._ids[function]] = task
        return self._ids[function]

    def close(self) -> None:
        self.call(self.executor.thread_finished)
        self._thread.shutdown()
        self.executor.event_loop.close(1.0)


class SlotWithoutThread(Slot):
    """A slot whose coroutines run without a thread, as in a worker that has run a job of their task before."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.executor.event_loop.threads = cast("Any", self)
        self._outcomes: dict[Claim, Future[Outcome]] = {}

    def start_claim(self, claim: Claim) -> Future[Outcome]:
        future = self._outcomes[claim] = Future()
        self._thread.submit(self._start, claim)
        return future

    def _start(self, claim: Claim) -> None:
        outcome = self.executor.start_job(claim)
        if outcome is not None:
            self._outcomes.pop(claim).set_result(outcome)

    def resume_ended(self, runs: Sequence[JobRun]) -> None:
        for run in runs:
            self.resume(run)

    def resume(self, run: JobRun) -> None:
        self._thread.submit(lambda: self._outcomes.pop(run.claim).set_result(self.executor.resume_job(run)))

    def call_more(self) -> bool:
        return False


@contextmanager
def open_slot(make: Callable[..., Slot] = Slot, **settings: Any) -> Iterator[Slot]:
    slot = make(**settings)
    try:
        yield slot
    finally:
        slot.close()
