"""``helpers``: what the worker provides to the task that it runs; ``helpers.abort`` asks the task to stop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Generator, Iterable, Mapping, MutableMapping
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Unpack
from weakref import WeakSet

from asgiref.sync import sync_to_async
from django.db import connections

from django_graphile_worker import api
from django_graphile_worker.job_options import JobOptions
from django_graphile_worker.jobs import Job, JobSpec, TaskLike
from django_graphile_worker.sql import progress as sql_progress
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.progress import Progress, valid_progress
from django_graphile_worker.sql.workers import worker_of
from django_graphile_worker.worker.execution.job_run import JobRun

if TYPE_CHECKING:
    # A circle: the invoker makes the helpers of a run.
    from django_graphile_worker.worker.execution.invoker import TaskInvoker

logger = logging.getLogger("django_graphile_worker.task")


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that adds the job's attributes to each record.

    The adapter of ``logging`` drops the ``extra`` of the call before Python 3.13; this class keeps both.
    """

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class Helpers:
    """The second argument of tasks that take ``(payload, helpers)``."""

    __slots__ = ("_deadline", "_invoker", "_job", "_logger", "_run", "installation", "using")

    def __init__(self, run: JobRun, invoker: TaskInvoker, job: Job | None = None) -> None:
        self._run = run
        self._invoker = invoker
        self._job = job
        self._logger: logging.LoggerAdapter[logging.Logger] | None = None
        self._deadline: datetime | None = None
        # The alias of the database that holds the job.
        self.using = invoker.using
        # The alias of the installation, in settings.GRAPHILE_WORKER.
        self.installation = invoker.installation

    @property
    def abort(self) -> Abort:
        """The request to stop now: the worker is about to stop, or this run is. Each run has its own."""
        return self._invoker.aborts.of(self._run)

    @property
    def deadline(self) -> datetime | None:
        """The time at which the worker stops this run; None without a time limit."""
        if self._deadline is None and self._run.deadline is not None:
            self._deadline = datetime.now(UTC) + timedelta(seconds=self._run.deadline - monotonic())
        return self._deadline

    @property
    def job(self) -> Job:
        """The job, as it was claimed."""
        if self._job is None:
            self._job = self._run.job
        return self._job

    @property
    def headers(self) -> dict[str, Any]:
        """What was added beside the payload."""
        return self.job.headers

    @property
    def worker_id(self) -> str:
        """The id of the worker that runs the job."""
        return worker_of(self.job.locked_by or "")

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records name the job and the worker."""
        if self._logger is None:
            job = self.job
            extra = {
                "worker_id": self.worker_id,
                "job_id": job.id,
                "task_identifier": job.task_identifier,
                "attempt": job.attempts,
            }
            self._logger = JobLogger(logger, extra)
        return self._logger

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report how far the task has got: ``helpers.progress(3, 7, "page 3 of 7")``.

        The report is stored within a second, on a connection of the worker, so that it can be seen while the job runs;
        the last report is stored before the job ends. It does not wait for the database, so async tasks call it, too.
        """
        self._invoker.report_progress(self._run, valid_progress(done, total, message))

    @property
    def connection(self) -> Any:
        """Django's connection to the database that holds the job."""
        return connections[self.using]

    def query(self, sql: str, params: Any = None) -> list[dict[str, Any]]:
        """Execute a statement in that database; return its rows as dicts, or an empty list if it returns no rows."""
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, params)
            if cursor.description is None:
                return []
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    async def aquery(self, sql: str, params: Any = None) -> list[dict[str, Any]]:
        """Execute a statement as ``query()`` does, from async code."""
        return await sync_to_async(self.query)(sql, params)

    def _here(self, options: Mapping[str, object]) -> dict[str, Any]:
        return {"using": self.using, "installation": self.installation, **options}

    def add_job(self, identifier: str | TaskLike, payload: Any = None, **options: Unpack[JobOptions]) -> Job:
        """Add a job to the installation of this job. Joins the transaction that is open on its connection."""
        return api.add_job(identifier, payload, **self._here(options))

    def add_jobs(self, specs: Iterable[JobSpec], **options: Any) -> Any:
        """Add several jobs to the installation of this job."""
        return api.add_jobs(specs, **self._here(options))

    async def aadd_job(self, identifier: str | TaskLike, payload: Any = None, **options: Unpack[JobOptions]) -> Job:
        """Add a job as ``add_job()`` does, from async code."""
        return await api.aadd_job(identifier, payload, **self._here(options))

    async def aadd_jobs(self, specs: Iterable[JobSpec], **options: Any) -> Any:
        """Add several jobs as ``add_jobs()`` does, from async code."""
        return await api.aadd_jobs(specs, **self._here(options))


class Abort:
    """The request to one run of a job to stop now. Async code may also await it. Every run has its own abort."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._waiters: dict[asyncio.Future[bool], asyncio.AbstractEventLoop] = {}

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the run has to stop, at most ``timeout`` seconds; return True if it has to stop."""
        return self._event.wait(timeout)

    def set(self) -> None:
        with self._lock:
            self._event.set()
            waiters, self._waiters = self._waiters, {}
        for future, loop in waiters.items():
            loop.call_soon_threadsafe(_resolve, future)

    def __bool__(self) -> bool:
        return self._event.is_set()

    def __await__(self) -> Generator[Any, None, bool]:
        return self._wait_on_loop().__await__()

    async def _wait_on_loop(self) -> bool:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        with self._lock:
            if self._event.is_set():
                return True
            self._waiters[future] = loop
        try:
            return await future
        finally:
            with self._lock:
                self._waiters.pop(future, None)


class Aborts:
    """The aborts of all runs of a worker. Each is made at the first use by its task: most tasks never use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Weak references. A thread that a task left running keeps its abort alive, and so gets the request, too.
        self._made: WeakSet[Abort] = WeakSet()
        self._are_all_set = False

    def of(self, run: JobRun) -> Abort:
        """Return the abort of this run, and make it first if needed."""
        if run.abort is None:
            with self._lock:
                if run.abort is None:
                    abort = Abort()
                    self._made.add(abort)
                    if self._are_all_set:
                        abort.set()
                    run.abort = abort
        return run.abort

    def is_set_for(self, run: JobRun) -> bool:
        return self._are_all_set or (run.abort is not None and run.abort.is_set())

    def set_for(self, run: JobRun) -> None:
        """Request one run to stop now."""
        self.of(run).set()

    def set_all(self) -> None:
        """Request every run to stop now, and every run that begins later."""
        with self._lock:
            self._are_all_set = True
            made = list(self._made)
        for abort in made:
            abort.set()


def _resolve(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(True)


class DirectReports:
    """Reports that are written at once on Django's connection, inside its transaction."""

    def __init__(self, *, using: str, schema: str) -> None:
        self._using = using
        self._schema = schema

    def report(self, claim: Claim, progress: Progress) -> None:
        report = sql_progress.Report(claim.id, claim.token, progress.done, progress.total, progress.message)
        with connections[self._using].cursor() as cursor:
            sql_progress.write(cursor, [report], schema=self._schema)

    def finish(self, claim: Claim) -> None:
        """Do nothing: every report is written when it is made."""
