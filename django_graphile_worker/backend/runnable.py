"""Django tasks as tasks of a worker: registered, called with the arguments of a payload, and reported as signals.

``task_started`` is sent when a run begins, ``task_finished`` after the database has stored the end of the job, so that
a receiver, and whoever it informs, reads the same status. An attempt that will be repeated has not finished.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from traceback import format_exception
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.dispatch import Signal
from django.utils import timezone

from django_graphile_worker import registry
from django_graphile_worker.backend.call import Call, normalized
from django_graphile_worker.backend.compat import (
    LOGGER_NAME,
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    task_backends,
    task_finished,
    task_started,
)
from django_graphile_worker.backend.options import BackendOptions
from django_graphile_worker.backend.results import enqueued_result, running_result, task_of_call
from django_graphile_worker.backend.tasks import (
    GraphileTask,
    as_graphile_task,
    backoff_of,
    defaults_of,
    expires_of,
    import_django_task,
    keep_result_of,
    limits_of,
    timeout_of,
)
from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.job_options import DefaultOptions, Unique, valid_unique
from django_graphile_worker.jobs import Job, JobDefaults
from django_graphile_worker.payloads import decode
from django_graphile_worker.registry import identifier_for, label_of, split_identifier, valid_schedulable
from django_graphile_worker.task_functions import is_async_function, source_of

logger = logging.getLogger(LOGGER_NAME)


class RunnableTask(registry.Task[Any, Any, Any]):
    """A Django task under one label, as a worker runs it."""

    def __init__(self, django_task: GraphileTask[Any, Any], identifier: str) -> None:
        self.django_task = django_task
        signals = self.signals = RunSignals(identifier, django_task.backend)
        make = _async_function if is_async_function(django_task.func) else _function
        super().__init__(
            _named_like(django_task.func, make(django_task, signals)),
            identifier,
            defaults=JobDefaults(),  # see the property
            atomic=django_task.atomic,
            backoff=backoff_of(django_task),
            give_up_on=registry.valid_exceptions(django_task.give_up_on, name="give_up_on"),
            retry_for=registry.valid_exceptions(django_task.retry_for, name="retry_for"),
            keep_result=keep_result_of(django_task),
            keeps_payload=True,
            timeout=timeout_of(django_task),
            expires=expires_of(django_task),
            limits=limits_of(django_task),
            schedulable=valid_schedulable(django_task.schedulable),
        )

    def result_seconds(self, default: float | None) -> float | None:
        """Return for how many seconds results are kept: what the task says, or the option RESULT_TTL of its backend."""
        if self.keep_result is None or self.keep_result is True:
            backend: Any = task_backends[self.django_task.backend]
            seconds: float = backend.checked_options.result_ttl
            return seconds or None
        return self.keep_result or None

    @property
    def defaults(self) -> JobDefaults:
        """The options with which ``enqueue()`` adds a job under this label."""
        task, backend = self.django_task, cast("Any", task_backends[self.django_task.backend])
        options: BackendOptions = backend.checked_options
        unique = valid_unique(task.unique)
        chosen: DefaultOptions = {
            **defaults_of(task),
            "queue_name": options.serial_queues.get(label_of(self.identifier)),
            "max_attempts": options.max_attempts if task.max_attempts is None else task.max_attempts,
            "job_key": self._job_key_of if callable(task.job_key) else task.job_key,
            # Django's larger numbers run sooner, ours later.
            "priority": -task.priority,
            "unique": None if unique is None else Unique(self._unique_key_of, unique.for_),
        }
        return JobDefaults(**chosen)

    def _unique_key_of(self, payload: Any) -> str:
        call = Call.from_payload(payload)
        unique = self.django_task.unique_for(call.args, call.kwargs)
        return "" if unique is None else cast("str", unique.key)

    def _job_key_of(self, payload: Any) -> str | None:
        call = Call.from_payload(payload)
        return self.django_task.job_key_for(call.args, call.kwargs)

    def key_fields(self, payload: Any) -> Any:
        """Return the arguments of a call by the names of the function's parameters, with their defaults."""
        call = Call.from_payload(payload)
        context = [None] if self.django_task.takes_context else []
        try:
            bound = inspect.signature(self.django_task.func).bind_partial(*context, *call.args, **call.kwargs)
        except TypeError as error:
            raise PayloadError(f"the arguments do not fit {self.django_task.module_path} ({error})") from None
        bound.apply_defaults()
        return dict(list(bound.arguments.items())[len(context) :])

    def key_from(self, function: Callable[..., Any], payload: Any) -> Any:
        """Call the key function of a limit with the arguments of a call."""
        call = Call.from_payload(payload)
        return function(*call.args, **call.kwargs)

    @property
    def default_labels(self) -> tuple[str, ...]:  # type: ignore[override]
        backend: Any = task_backends[self.django_task.backend]
        labels: tuple[str, ...] = backend.checked_options.queue_labels
        return labels

    @property
    def place(self) -> str:
        filename, line = source_of(self.django_task.func)
        module, name = self.origin
        return f"{module}:{name} ({filename}:{line})"


def _function(task: GraphileTask[Any, Any], signals: RunSignals) -> Callable[..., Any]:
    """Return the function that a worker calls for a job of a ``def`` task."""
    function, takes_context = task.func, task.takes_context

    def run(payload: Any, helpers: Any) -> Any:
        call = Call.from_payload(payload)
        run = signals.begin(call, helpers) if takes_context or signals.are_heard() else None
        args = [run.context(helpers), *call.args] if run is not None and takes_context else call.args
        try:
            value = _return_value(function(*args, **call.kwargs))
        except BaseException as error:
            signals.note_error(helpers, error)
            raise
        if run is not None:
            run.value = value
        return value

    return run


def _async_function(task: GraphileTask[Any, Any], signals: RunSignals) -> Callable[..., Any]:
    """Return the function that a worker calls for a job of an ``async def`` task."""
    function, takes_context = task.func, task.takes_context

    async def run(payload: Any, helpers: Any) -> Any:
        call = Call.from_payload(payload)
        run = None
        if takes_context or signals.are_heard():
            may_block = signals.may_block(helpers.job)
            run = await sync_to_async(signals.begin)(call, helpers) if may_block else signals.begin(call, helpers)
        args = [run.context(helpers), *call.args] if run is not None and takes_context else call.args
        try:
            value = _return_value(await function(*args, **call.kwargs))
        except BaseException as error:
            signals.note_error(helpers, error)
            raise
        if run is not None:
            run.value = value
        return value

    return run


def register(task: Task[..., Any], identifier: str | None = None) -> RunnableTask:
    """Register a Django task under an identifier, by default that of its path and label, unless it is registered."""
    identifier = identifier or identifier_for(task.module_path, task.queue_name)
    known = registry.tasks.get(identifier)
    if isinstance(known, RunnableTask) and known.django_task.func is task.func:
        return known
    made = RunnableTask(as_graphile_task(task), identifier)
    registry.tasks.register(made)
    return made


def registered_identifier(task: Task[..., Any], label: str) -> str:
    """Return the identifier of a task under this label, which is registered if it was not."""
    return register(task, identifier_for(task.module_path, label)).identifier


def find_runnable(identifier: str) -> RunnableTask | None:
    """Return the task that a job with this identifier runs, or None; raise what the import of its module raises."""
    found = import_django_task(split_identifier(identifier)[0])
    return None if found is None else register(found, identifier)


def _return_value(value: Any) -> Any:
    try:
        return normalized(value, "return value")
    except PayloadError as error:
        # The framework promises a TypeError, and its users compare the class.
        refusal: Any = (TypeError if isinstance(error, TypeError) else ValueError)(str(error))
        # The task has done its work: another attempt would repeat it, and return the same.
        refusal.is_misfit = True
        raise refusal from None


def _named_like(function: Callable[..., Any], runs: Callable[..., Any]) -> Callable[..., Any]:
    """Give the function that a worker calls the name of the task's function, for messages."""
    runs.__module__, runs.__doc__ = function.__module__, function.__doc__
    runs.__name__, runs.__qualname__ = function.__name__, function.__qualname__
    return runs


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


class RunSignals:
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
