"""``helpers``: what a task may ask of the worker that runs it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator, Iterable, MutableMapping
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from asgiref.sync import sync_to_async
from django.db import connections

from django_graphile_worker.conf import DEFAULT
from django_graphile_worker.jobs import Job, JobSpec

if TYPE_CHECKING:
    from typing import Unpack

    from django_graphile_worker.jobs import JobOptions, TaskLike
    from django_graphile_worker.worker.execution.job_run import JobRun

logger = logging.getLogger("django_graphile_worker.task")


class Abort:
    """Tells one run of a job to stop now; async code may also await it. Every run has its own."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._waiters: dict[asyncio.Future[bool], asyncio.AbstractEventLoop] = {}

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the run is to stop, or for ``timeout`` seconds; True when it is to stop."""
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
    """The aborts of all runs of a worker. Each is made when its task first asks for it: most tasks never do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Weak: what a task has left running is told too, for as long as it holds the abort.
        self._made: WeakSet[Abort] = WeakSet()
        self._are_all_set = False

    def of(self, run: JobRun) -> Abort:
        """The abort of this run."""
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

    def set_all(self) -> None:
        """Every run is to stop now, and every run to come."""
        with self._lock:
            self._are_all_set = True
            made = list(self._made)
        for abort in made:
            abort.set()


def _resolve(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(True)


def _api() -> ModuleType:
    # Loaded for the first task that adds a job: the first job of all need not wait the 5 ms for it.
    from django_graphile_worker import api

    return api


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the job's facts to those of the call; logging's own adapter drops the latter before Python 3.13."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class Helpers:
    """Given to tasks that take ``(payload, helpers)``."""

    __slots__ = ("_build_abort", "_build_job", "_job", "_logger", "installation", "using")

    def __init__(
        self,
        build_job: Callable[[], Job],
        *,
        using: str,
        installation: str = DEFAULT,
        build_abort: Callable[[], Abort] = Abort,
    ) -> None:
        self._build_job = build_job
        self._build_abort = build_abort
        self._job: Job | None = None
        self._logger: logging.LoggerAdapter[logging.Logger] | None = None
        # The alias of the database that the job lives in.
        self.using = using
        # The alias of the installation, in settings.GRAPHILE_WORKER.
        self.installation = installation

    @property
    def abort(self) -> Abort:
        """Set when this run is to stop now, because the worker is about to stop. Each run has one of its own."""
        return self._build_abort()

    @property
    def job(self) -> Job:
        """The job, as it was claimed."""
        if self._job is None:
            self._job = self._build_job()
        return self._job

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records say which job they belong to."""
        if self._logger is None:
            job = self.job
            extra = {"job_id": job.id, "task_identifier": job.task_identifier, "attempt": job.attempts}
            self._logger = JobLogger(logger, extra)
        return self._logger

    @property
    def connection(self) -> Any:
        """Django's connection to the database that the job lives in."""
        return connections[self.using]

    def query(self, sql: str, params: Any = None) -> list[dict[str, Any]]:
        """Run one statement there; its rows as dicts, none when it returns no rows."""
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, params)
            if cursor.description is None:
                return []
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    async def aquery(self, sql: str, params: Any = None) -> list[dict[str, Any]]:
        """The same from async code."""
        return await sync_to_async(self.query)(sql, params)

    @property
    def _place(self) -> dict[str, str]:
        return {"using": self.using, "installation": self.installation}

    def add_job(self, identifier: str | TaskLike, payload: Any = None, **options: Unpack[JobOptions]) -> Job:
        """Add a job where this one lives; joins the transaction that is open there."""
        job: Job = _api().add_job(identifier, payload, **{**self._place, **options})
        return job

    def add_jobs(self, specs: Iterable[JobSpec], **options: Any) -> Any:
        return _api().add_jobs(specs, **{**self._place, **options})

    async def aadd_job(self, identifier: str | TaskLike, payload: Any = None, **options: Unpack[JobOptions]) -> Job:
        job: Job = await _api().aadd_job(identifier, payload, **{**self._place, **options})
        return job

    async def aadd_jobs(self, specs: Iterable[JobSpec], **options: Any) -> Any:
        return await _api().aadd_jobs(specs, **{**self._place, **options})
