"""``enqueue_many()``: many calls of Django tasks, with one statement for each batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.db import transaction

from django_graphile_worker.api.add import add_jobs
from django_graphile_worker.api.connection import async_variant
from django_graphile_worker.backend.call import Call
from django_graphile_worker.backend.compat import InvalidTask, Task, TaskResult
from django_graphile_worker.exceptions import InvalidTypeError, PayloadError
from django_graphile_worker.jobs import JobSpec
from django_graphile_worker.routing import Place

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
                f"expected a task of a GraphileWorkerBackend, got {task.module_path} of {type(backend).__name__}."
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
