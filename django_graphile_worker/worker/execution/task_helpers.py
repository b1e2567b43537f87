"""``helpers``: what the worker provides to the task that it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, MutableMapping
from datetime import UTC, datetime, timedelta
from time import monotonic
from types import ModuleType
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import connections

from django_graphile_worker.conf import DEFAULT
from django_graphile_worker.jobs import Job, JobSpec
from django_graphile_worker.sql.workers import worker_of
from django_graphile_worker.worker.execution.stops.abort import Abort

if TYPE_CHECKING:
    from typing import Unpack

    from django_graphile_worker.job_options import JobOptions
    from django_graphile_worker.jobs import TaskLike
    from django_graphile_worker.progress import Progress

logger = logging.getLogger("django_graphile_worker.task")


def _api() -> ModuleType:
    # Late import: only a task that adds a job needs the API, and the first job of a worker does not wait 5 ms for it.
    from django_graphile_worker import api

    return api


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that adds the job's attributes to each record.

    The adapter of ``logging`` drops the ``extra`` of the call before Python 3.13; this class keeps both.
    """

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class Helpers:
    """The second argument of tasks that take ``(payload, helpers)``."""

    __slots__ = (
        "_build_abort",
        "_build_job",
        "_deadline",
        "_job",
        "_logger",
        "_report_progress",
        "installation",
        "using",
    )

    def __init__(
        self,
        build_job: Callable[[], Job],
        *,
        using: str,
        installation: str = DEFAULT,
        build_abort: Callable[[], Abort] = Abort,
        report_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._build_job = build_job
        self._build_abort = build_abort
        self._report_progress = report_progress
        self._job: Job | None = None
        self._logger: logging.LoggerAdapter[logging.Logger] | None = None
        # The alias of the database that holds the job.
        self.using = using
        # The alias of the installation, in settings.GRAPHILE_WORKER.
        self.installation = installation

    @property
    def abort(self) -> Abort:
        """The request to stop now: the worker is about to stop, or this run is. Each run has its own."""
        return self._build_abort()

    @property
    def deadline(self) -> datetime | None:
        """The time at which the worker stops this run; None without a time limit."""
        # Not set without a time limit: an assignment would cost every job.
        return getattr(self, "_deadline", None)

    def limit(self, deadline: float | None) -> None:
        """Set the deadline, which is given by the monotonic clock. Called by the worker."""
        if deadline is not None:
            self._deadline = datetime.now(UTC) + timedelta(seconds=deadline - monotonic())

    @property
    def job(self) -> Job:
        """The job, as it was claimed."""
        if self._job is None:
            self._job = self._build_job()
        return self._job

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
        # Late import: few tasks report their progress.
        from django_graphile_worker.progress import valid_progress

        progress = valid_progress(done, total, message)
        if self._report_progress is not None:
            self._report_progress(progress)

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

    @property
    def _place(self) -> dict[str, str]:
        return {"using": self.using, "installation": self.installation}

    def add_job(self, identifier: str | TaskLike, payload: Any = None, **options: Unpack[JobOptions]) -> Job:
        """Add a job to the installation of this job. Joins the transaction that is open on its connection."""
        job: Job = _api().add_job(identifier, payload, **{**self._place, **options})
        return job

    def add_jobs(self, specs: Iterable[JobSpec], **options: Any) -> Any:
        """Add several jobs to the installation of this job."""
        return _api().add_jobs(specs, **{**self._place, **options})

    async def aadd_job(self, identifier: str | TaskLike, payload: Any = None, **options: Unpack[JobOptions]) -> Job:
        """Add a job as ``add_job()`` does, from async code."""
        job: Job = await _api().aadd_job(identifier, payload, **{**self._place, **options})
        return job

    async def aadd_jobs(self, specs: Iterable[JobSpec], **options: Any) -> Any:
        """Add several jobs as ``add_jobs()`` does, from async code."""
        return await _api().aadd_jobs(specs, **{**self._place, **options})
