"""``GraphileWorkerBackend``, the backend of Django Tasks, and ``enqueue_many()``, which adds many calls at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from django.core.checks import CheckMessage
from django.db import transaction

from django_graphile_worker.api.add import add_jobs, add_spec
from django_graphile_worker.api.connection import async_variant, open_place
from django_graphile_worker.backend import tasks
from django_graphile_worker.backend.call import Call
from django_graphile_worker.backend.compat import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    task_enqueued,
)
from django_graphile_worker.backend.options import BackendOptions, check_backend, read_options
from django_graphile_worker.backend.results import enqueued_result, job_id_of, stored_result, with_values
from django_graphile_worker.backend.runnable import register, registered_identifier
from django_graphile_worker.backend.tasks import GraphileTask, as_graphile_task, validate_options
from django_graphile_worker.exceptions import InvalidTypeError, PayloadError
from django_graphile_worker.jobs import Job, JobSpec
from django_graphile_worker.registry import is_path, split_identifier
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.results import StoredTask, stored_task
from django_graphile_worker.text import quoted

P = ParamSpec("P")
R = TypeVar("R")


class GraphileWorkerBackend(BaseTaskBackend):
    """Runs Django tasks as jobs: added in the caller's transaction, run by ``manage.py runworker``."""

    task_class = GraphileTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    # A worker runs only tasks of backends with this mark.
    runs_in_graphile_worker = True

    @cached_property
    def checked_options(self) -> BackendOptions:
        """The options of the setting; raises ConfigurationError if they have errors, which ``check()`` reports."""
        return read_options(self.options, alias=self.alias, labels=self.queues)

    def validate_task(self, task: Task[..., Any]) -> None:
        """Raise InvalidTask for a task that cannot run; called when a task is made and when it is enqueued."""
        tasks.validate_priority(task)
        tasks.validate_run_after(task.run_after)
        tasks.validate_label(task, self.queues, self.alias)
        # Django's own check of a time does not take a timedelta.
        run_after: object = task.run_after
        super().validate_task(with_values(task, run_after=None) if isinstance(run_after, timedelta) else task)
        tasks.validate_identifier(task)
        if isinstance(task, GraphileTask):
            validate_options(task)

    def register_task(self, task: GraphileTask[..., Any]) -> None:
        """Make a task known to workers and to the admin; called when a task is made."""
        if not tasks.is_declared(task):
            register(task)

    def enqueue(self, task: Task[P, R], args: Any, kwargs: Any) -> TaskResult[P, R]:
        """Add a job for this call in the current transaction."""
        call, spec = self.prepare(task, args, kwargs)
        options = self.checked_options
        job = add_spec(spec, using=options.database, installation=options.installation)
        return self.added(task, call, job)

    def prepare(self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Call, JobSpec]:
        """Return a call and its job to be; raise before any statement if the task or an argument is not valid."""
        self.validate_task(task)
        declared = tasks.declared_task(task)
        tasks.validate_arguments(task, args, kwargs)
        options = self.checked_options
        call = Call.of(task, args, kwargs, backend=self.alias)
        own = as_graphile_task(task)
        chosen: dict[str, Any] = {
            **own.job_options(),
            "queue_name": options.serial_queues.get(task.queue_name),
            "run_at": call.run_after,
            "max_attempts": own.max_attempts if own.max_attempts is not None else options.max_attempts,
            "job_key": own.job_key_for(call.args, call.kwargs),
            "unique": own.unique_for(call.args, call.kwargs),
            # Django's larger numbers run sooner, ours later.
            "priority": -call.priority,
        }
        spec = JobSpec(registered_identifier(declared, task.queue_name), call.to_payload(), **chosen)
        return call, spec

    def added(self, task: Task[P, R], call: Call, job: Job) -> TaskResult[P, R]:
        """Return the result of a job that was added, and send ``task_enqueued``; or that of the job that was there."""
        result = enqueued_result(task, call, job_id=job.id, added_at=job.created_at, alias=self.alias)
        # What became of a job that was there is not read: the role may not be allowed to. refresh() reads it.
        if not job.existed:
            task_enqueued.send(sender=type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return the result with this id; raise TaskResultDoesNotExist, for a malformed id without a query."""
        job_id = job_id_of(result_id, self.alias)
        if job_id is None:
            raise TaskResultDoesNotExist(
                f"{quoted(result_id)} is no id that enqueue() of the backend {self.alias!r} returned. "
                "It may be that of another backend, or of a job."
            )
        result = self.result_of_job(job_id)
        if result is None:
            raise TaskResultDoesNotExist(
                f"{result_id}: there is no such task result in the backend {self.alias!r}. It may have expired: see "
                "RESULT_TTL."
            )
        return result

    def result_of_job(self, job_id: int) -> TaskResult[..., Any] | None:
        """Return the result of a job of this backend, or None."""
        with open_place(self.checked_options.place()) as queue:
            stored = stored_task(queue.cursor, job_id, schema=queue.schema)
        call = None if stored is None else _call_of(stored, self.alias)
        if stored is None or call is None:
            return None
        return stored_result(stored, call, alias=self.alias)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Return what is wrong with the setting of this backend."""
        return check_backend(self)


def _call_of(stored: StoredTask, alias: str) -> Call | None:
    if not is_path(split_identifier(stored.task_identifier)[0]):
        return None
    if stored.payload is None:
        # The job was removed before it ran, and its arguments with it.
        return Call(backend=alias)
    try:
        return Call.from_payload(stored.payload)
    except PayloadError:
        return None


if TYPE_CHECKING:
    # A task, its arguments, and its keyword arguments, which may be left out. For type checkers only: Django's own Task
    # is not generic.
    TaskCall = tuple[Task[..., Any], Sequence[Any]] | tuple[Task[..., Any], Sequence[Any], Mapping[str, Any]]


class _Prepared:
    """A call that is valid, and its job to be."""

    __slots__ = ("backend", "call", "place", "spec", "task")

    def __init__(self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        backend: Any = task.get_backend()
        if getattr(backend, "runs_in_graphile_worker", False) is not True:
            raise InvalidTask(
                f"{task.module_path} is a task of {type(backend).__name__}, and not of a GraphileWorkerBackend."
            )
        self.task = task
        self.backend = backend
        self.place: Place = backend.checked_options.place()
        self.call: Call
        self.spec: JobSpec
        self.call, self.spec = backend.prepare(task, args, kwargs)


def enqueue_many(calls: Iterable[TaskCall]) -> list[TaskResult[..., Any]]:
    """Enqueue many calls, all or none of each database, and return their results in the same order.

    Each call is a tuple of a task, a list of arguments and, if it has any, a dict of keyword arguments:
    ``enqueue_many([(send, [order.pk], {"copy": True}) for order in orders])``.
    """
    prepared = [_prepared(call, f"calls[{index}]") for index, call in enumerate(calls)]
    added: dict[int, Any] = {}
    for place in {(each.place.using, each.place.installation): each.place for each in prepared}.values():
        indexes = [index for index, each in enumerate(prepared) if each.place == place]
        with transaction.atomic(using=place.using):
            jobs = add_jobs(
                [prepared[index].spec for index in indexes], using=place.using, installation=place.installation
            )
        added |= dict(zip(indexes, jobs, strict=True))
    return [each.backend.added(each.task, each.call, added[index]) for index, each in enumerate(prepared)]


aenqueue_many = async_variant(enqueue_many)


def _prepared(call: Any, name: str) -> _Prepared:
    if not isinstance(call, tuple) or not 2 <= len(call) <= 3 or not isinstance(call[0], Task):
        raise InvalidTypeError(f"{name}: expected a tuple (task, args) or (task, args, kwargs), got {_kinds(call)}.")
    task, args, kwargs = call if len(call) == 3 else (*call, {})
    if isinstance(args, str | bytes) or not isinstance(args, Sequence) or not isinstance(kwargs, Mapping):
        raise InvalidTypeError(
            f"{name}: expected a list of arguments, and a dict of others by name, got {_kinds(call[1:])}."
        )
    try:
        return _Prepared(task, args, kwargs)
    except PayloadError as error:
        raise type(error)(f"{name}: {error}", path=error.path) from None
    except InvalidTypeError as error:
        raise InvalidTypeError(f"{name}: {error}") from None


def _kinds(value: Any) -> str:
    """Return the types of a call for a message, which must not have its arguments."""
    return f"({', '.join(type(part).__name__ for part in value)})" if isinstance(value, tuple) else type(value).__name__
