"""Django tasks as tasks of a worker: registered, called with the arguments of a payload, and reported as signals."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

from asgiref.sync import sync_to_async

from django_graphile_worker import registry
from django_graphile_worker.backend.arguments import normalized
from django_graphile_worker.backend.call import Call
from django_graphile_worker.backend.compat import Task, task_backends
from django_graphile_worker.backend.discovery import import_django_task
from django_graphile_worker.backend.run_events import RunEvents
from django_graphile_worker.backend.task_class import (
    GraphileTask,
    as_graphile_task,
    backoff_of,
    expires_of,
    keep_result_of,
    limits_of,
    timeout_of,
)
from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.job_options import Unique, valid_unique
from django_graphile_worker.jobs import JobDefaults
from django_graphile_worker.registry import identifier_for, label_of, split_identifier, valid_schedulable
from django_graphile_worker.signatures import is_async_function, source_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_graphile_worker.backend.options import BackendOptions


class RunnableTask(registry.Task[Any, Any, Any]):
    """A Django task under one label, as a worker runs it."""

    def __init__(self, django_task: GraphileTask[Any, Any], identifier: str) -> None:
        self.django_task = django_task
        events = self.events = RunEvents(identifier, django_task.backend)
        make = _async_function if is_async_function(django_task.func) else _function
        super().__init__(
            _named_like(django_task.func, make(django_task, events)),
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
        return JobDefaults(
            queue_name=options.serial_queues.get(label_of(self.identifier)),
            max_attempts=options.max_attempts if task.max_attempts is None else task.max_attempts,
            job_key=self._job_key_of if callable(task.job_key) else task.job_key,
            job_key_mode=task.job_key_mode,
            # Django's larger numbers run sooner, ours later.
            priority=-task.priority,
            flags=task.flags,
            unique=None if unique is None else Unique(self._unique_key_of, unique.for_),
        )

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
            raise PayloadError(f"expected arguments of {self.django_task.module_path}, got others ({error})") from None
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


def _function(task: GraphileTask[Any, Any], events: RunEvents) -> Callable[..., Any]:
    """Return the function that a worker calls for a job of a ``def`` task."""
    function, takes_context = task.func, task.takes_context

    def run(payload: Any, helpers: Any) -> Any:
        call = Call.from_payload(payload)
        run = events.begin(call, helpers) if takes_context or events.are_heard() else None
        args = [run.context(helpers), *call.args] if run is not None and takes_context else call.args
        try:
            value = _return_value(function(*args, **call.kwargs))
        except BaseException as error:
            events.note_error(helpers, error)
            raise
        if run is not None:
            run.value = value
        return value

    return run


def _async_function(task: GraphileTask[Any, Any], events: RunEvents) -> Callable[..., Any]:
    """Return the function that a worker calls for a job of an ``async def`` task."""
    function, takes_context = task.func, task.takes_context

    async def run(payload: Any, helpers: Any) -> Any:
        call = Call.from_payload(payload)
        run = None
        if takes_context or events.are_heard():
            may_block = events.may_block(helpers.job)
            run = await sync_to_async(events.begin)(call, helpers) if may_block else events.begin(call, helpers)
        args = [run.context(helpers), *call.args] if run is not None and takes_context else call.args
        try:
            value = _return_value(await function(*args, **call.kwargs))
        except BaseException as error:
            events.note_error(helpers, error)
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
