"""The signals of the framework for a run in a worker: ``task_started``, and ``task_finished`` when the end is stored.

``task_finished`` is sent after the database has stored the end of the job, so that a receiver, and whoever it tells,
reads the same status. An attempt that will be repeated has not finished.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from traceback import format_exception
from typing import Any

from django.dispatch import Signal
from django.utils import timezone

from django_graphile_worker.backend.call import Call
from django_graphile_worker.backend.compat import (
    LOGGER_NAME,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    task_backends,
    task_finished,
    task_started,
)
from django_graphile_worker.backend.result_ids import result_id
from django_graphile_worker.backend.task_results import running_result, task_of_call
from django_graphile_worker.jobs import Job

logger = logging.getLogger(LOGGER_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphileTaskContext(TaskContext):  # type: ignore[misc, type-arg]
    """The context of a task: Django's, and the helpers of the worker."""

    helpers: Any = None


class Run:
    """One run of a Django task, from its start until its end is stored."""

    __slots__ = ("backend", "error", "result", "value")

    def __init__(self, backend: Any, result: TaskResult[..., Any] | None) -> None:
        self.backend = backend
        # None if neither the task nor a receiver needs it.
        self.result = result
        self.value: Any = None
        self.error: BaseException | None = None

    def context(self, helpers: Any) -> GraphileTaskContext:
        assert self.result is not None
        return GraphileTaskContext(task_result=self.result, helpers=helpers)


class RunEvents:
    """The runs of one task in this process."""

    def __init__(self, identifier: str) -> None:
        self._identifier = identifier
        self._runs: dict[tuple[int, int], Run] = {}

    def may_block(self, job: Job) -> bool:
        """Return whether ``begin()`` reads the database, or calls receivers of the project."""
        return job.attempts > 1 or _has_own_receivers(task_started)

    def begin(self, call: Call, helpers: Any, *, takes_context: bool) -> Run:
        """Note that a run begins, and send ``task_started``."""
        job: Job = helpers.job
        backend = task_backends[call.backend]
        is_heard = _is_heard(task_started, logging.INFO)
        result = None
        if takes_context or is_heard or _is_heard(task_finished, logging.INFO):
            result = self._result(call, job, helpers.installation, backend)
        run = self._runs[job.id, job.attempts] = Run(backend, result)
        if is_heard:
            _send(task_started, backend, result)
        return run

    def forget(self, job_id: int, attempts: int) -> None:
        """Forget a run whose end is not the end of its job."""
        run = self._runs.pop((job_id, attempts), None)
        if run is not None:
            # The traceback refers to the frame of the run, and that frame to the run.
            run.error = None

    def finish(self, job_id: int, attempts: int, installation: str, *, succeeded: bool) -> None:
        """Send ``task_finished`` for a job whose end is stored."""
        run = self._runs.pop((job_id, attempts), None)
        if not _is_heard(task_finished, logging.INFO if succeeded else logging.ERROR):
            return
        result = _ended(run) if run is not None and (succeeded or run.error is not None) else None
        if result is None:
            # No result was made at the start, another worker died with the job, or the failure came from outside the
            # task.
            result = self._stored_result(job_id, installation)
        if result is not None:
            _send(task_finished, task_backends[result.backend], result, error=None if run is None else run.error)
        if run is not None:
            run.error = None

    def _stored_result(self, job_id: int, installation: str) -> TaskResult[..., Any] | None:
        for alias in task_backends:
            read = getattr(task_backends[alias], "result_of_job", None)
            result: TaskResult[..., Any] | None = None if read is None else read(job_id, installation)
            if result is not None:
                return result if result.is_finished else None
        return None

    def _result(self, call: Call, job: Job, installation: str, backend: Any) -> TaskResult[..., Any]:
        earlier = backend.result_of_job(job.id, installation) if job.attempts > 1 else None
        if earlier is not None:
            # The stored result already counts the run that begins. Attempts of which nothing is kept count, too.
            ended = earlier.worker_ids[:-1]
            earlier.worker_ids[:] = [""] * (job.attempts - 1 - len(ended)) + ended
        return running_result(
            earlier or self._first_result(call, job, installation, backend),
            worker_id=job.locked_by or "",
            started_at=timezone.now(),
        )

    def _first_result(self, call: Call, job: Job, installation: str, backend: Any) -> TaskResult[..., Any]:
        return TaskResult(
            task=task_of_call(self._identifier, call, added_at=job.created_at),
            id=result_id(job.id, installation),
            status=TaskResultStatus.READY,
            enqueued_at=job.created_at,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=call.args,
            kwargs=call.kwargs,
            backend=backend.alias,
            errors=[],
            worker_ids=[],
        )


def _ended(run: Run) -> TaskResult[..., Any] | None:
    """Return the result of a run that has ended, or None if no result was made when it began."""
    result, error = run.result, run.error
    if result is None:
        return None
    object.__setattr__(result, "finished_at", timezone.now())
    if error is None:
        object.__setattr__(result, "status", TaskResultStatus.SUCCESSFUL)
        object.__setattr__(result, "_return_value", run.value)
    else:
        object.__setattr__(result, "status", TaskResultStatus.FAILED)
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        result.errors.append(TaskError(exception_class_path=path, traceback="".join(format_exception(error))))
    return result


def _send(
    signal: Signal, backend: Any, result: TaskResult[..., Any] | None, *, error: BaseException | None = None
) -> None:
    """Send a signal. A receiver that raises is logged by Django, and harms neither the job nor the worker.

    An error is being handled while the signal is sent: the log of the framework takes its traceback from there.
    """
    if error is None:
        signal.send_robust(sender=type(backend), task_result=result)
        return
    try:
        raise error
    except BaseException:
        signal.send_robust(sender=type(backend), task_result=result)


def _has_own_receivers(signal: Signal) -> bool:
    """Return whether anything but the log of the framework receives the signal."""
    return len(signal.receivers) > 1


def _is_heard(signal: Signal, level: int) -> bool:
    """Return whether any receiver would act on the signal; if not, the result that it takes need not be made."""
    return _has_own_receivers(signal) or (bool(signal.receivers) and logger.isEnabledFor(level))
