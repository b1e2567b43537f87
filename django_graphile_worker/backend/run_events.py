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
from django_graphile_worker.backend.task_results import enqueued_result, running_result, task_of_call
from django_graphile_worker.jobs import Job
from django_graphile_worker.payloads import decode

logger = logging.getLogger(LOGGER_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphileTaskContext(TaskContext):  # type: ignore[misc, type-arg]
    """The context of a task: Django's, and the helpers of the worker."""

    helpers: Any = None


class Run:
    """One run of a Django task, from its start until its end is stored."""

    __slots__ = ("error", "result", "value")

    def __init__(self, result: TaskResult[..., Any] | None) -> None:
        # None if neither the task nor a receiver needed it at the start.
        self.result = result
        self.value: Any = None
        self.error: BaseException | None = None

    def context(self, helpers: Any) -> GraphileTaskContext:
        assert self.result is not None
        return GraphileTaskContext(task_result=self.result, helpers=helpers)


class RunEvents:
    """The runs of one task in this process."""

    def __init__(self, identifier: str, backend: str) -> None:
        self._identifier = identifier
        # The backend for which the task was declared.
        self._backend = backend
        self._runs: dict[tuple[int, int], Run] = {}

    def are_heard(self) -> bool:
        """Return whether any receiver acts on the signals of a run that succeeds; if not, no result has to be made."""
        return _is_heard(task_started, logging.INFO) or _is_heard(task_finished, logging.INFO)

    def is_end_heard(self, *, succeeded: bool) -> bool:
        """Return whether any receiver acts on ``task_finished``."""
        return _is_heard(task_finished, logging.INFO if succeeded else logging.ERROR)

    def may_block(self, job: Job) -> bool:
        """Return whether ``begin()`` reads the database, or calls receivers of the project."""
        return job.attempts > 1 or _has_own_receivers(task_started)

    def begin(self, call: Call, helpers: Any) -> Run:
        """Note that a run begins, and send ``task_started``."""
        job: Job = helpers.job
        backend = self._backend_of(call)
        result = self._result(call, job, backend)
        run = self._runs[job.id, job.attempts] = Run(result)
        if _is_heard(task_started, logging.INFO):
            _send(task_started, backend, result)
        return run

    def note_error(self, helpers: Any, error: BaseException) -> None:
        """Note the error of a run: if the attempt was the last, the log gets its traceback."""
        if self.is_end_heard(succeeded=False):
            job: Job = helpers.job
            self._runs.setdefault((job.id, job.attempts), Run(None)).error = error

    def forget(self, job_id: int, attempts: int) -> None:
        """Forget a run whose end is not the end of its job."""
        run = self._runs.pop((job_id, attempts), None)
        if run is not None:
            # The traceback refers to the frame of the run, and that frame to the run.
            run.error = None

    def finish(self, job_id: int, attempts: int, payload_text: str, *, succeeded: bool) -> None:
        """Send ``task_finished`` for a job whose end is stored."""
        run = self._runs.pop((job_id, attempts), None)
        error = None if run is None else run.error
        result = _ended(run) if run is not None and (succeeded or error is not None) else None
        if result is None:
            # No result was made at the start, another worker died with the job, or the failure came from outside the
            # task.
            backend: Any = self._backend_of(_call_of(payload_text))
            result = backend.result_of_job(job_id)
        if result is not None and result.is_finished:
            _send(task_finished, task_backends[result.backend], result, error=error)
        if run is not None:
            run.error = None

    def _backend_of(self, call: Call) -> Any:
        """Return the backend of a call; that of the task, if the project does not have the other any more."""
        backend = task_backends[call.backend] if call.backend in task_backends.settings else None
        return backend if hasattr(backend, "result_of_job") else task_backends[self._backend]

    def _result(self, call: Call, job: Job, backend: Any) -> TaskResult[..., Any]:
        earlier = backend.result_of_job(job.id) if job.attempts > 1 else None
        if earlier is not None:
            # The stored result already counts the run that begins. Attempts of which nothing is kept count, too.
            ended = earlier.worker_ids[:-1]
            earlier.worker_ids[:] = [""] * (job.attempts - 1 - len(ended)) + ended
        return running_result(
            earlier or self._first_result(call, job, backend.alias),
            worker_id=job.locked_by or "",
            started_at=timezone.now(),
        )

    def _first_result(self, call: Call, job: Job, alias: str) -> TaskResult[..., Any]:
        return enqueued_result(
            task_of_call(self._identifier, call, added_at=job.created_at),
            call,
            job_id=job.id,
            added_at=job.created_at,
            alias=alias,
        )


def _call_of(payload_text: str) -> Call:
    try:
        return Call.from_payload(decode(payload_text))
    except (ValueError, RecursionError):
        return Call()


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
