"""Which tasks the backend accepts. Django checks a task when it is made, and when it is enqueued."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from django_graphile_worker.backend.compat import TASK_MAX_PRIORITY, TASK_MIN_PRIORITY, InvalidTask, Task
from django_graphile_worker.backend.discovery import is_ours
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.job_options import valid_identifier, valid_run_at
from django_graphile_worker.registry import identifier_for


def validate_priority(task: Task[..., Any]) -> None:
    priority: Any = task.priority
    is_whole = isinstance(priority, int | float) and not isinstance(priority, bool) and priority % 1 == 0
    if not is_whole or not TASK_MIN_PRIORITY <= priority <= TASK_MAX_PRIORITY:
        raise InvalidTask(
            f"priority must be a whole number between {TASK_MIN_PRIORITY} and {TASK_MAX_PRIORITY}. "
            f"Got {priority!r}; a larger number runs sooner."
        )


def validate_label(task: Task[..., Any], labels: set[str], alias: str) -> None:
    label: Any = task.queue_name
    if not isinstance(label, str) or not label:
        raise InvalidTask(f"queue_name: expected a label, a string of at least one character, got {label!r}.")
    if labels and label not in labels:
        raise InvalidTask(
            f"Queue '{label}' is not valid for backend. Expected one of {', '.join(map(repr, sorted(labels)))}: "
            f'add it to TASKS["{alias}"]["QUEUES"].'
        )


def validate_identifier(task: Task[..., Any]) -> None:
    label = task.queue_name
    try:
        valid_identifier(identifier_for(task.module_path, label))
    except InvalidJobError as error:
        raise InvalidTask(
            f"The path of the function and the label {label!r} are the task identifier of its jobs: {error}"
        ) from error


def validate_run_after(run_after: Any) -> None:
    """Raise InvalidTask for a value that is neither a time nor a timedelta, or too far away."""
    if run_after is None:
        return
    if not isinstance(run_after, datetime | timedelta):
        raise InvalidTask(f"run_after: expected a datetime or a timedelta, got {run_after!r}.")
    try:
        valid_run_at(run_after)
    except InvalidJobError as error:
        raise InvalidTask(str(error).replace("run_at", "run_after")) from error


def validate_arguments(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise InvalidTypeError, as calling the function would raise TypeError, if it does not take the arguments."""
    context = (None,) if task.takes_context else ()
    try:
        _signature(task.func).bind(*context, *args, **kwargs)
    except TypeError as error:
        raise InvalidTypeError(f"enqueue() of {task.module_path}: {error}.") from None


# enqueue_many() may get thousands of calls of one task.
@lru_cache(maxsize=256)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    # That of the function itself: a decorator may take other arguments than the function inside it.
    return inspect.signature(function, follow_wrapped=False)


def declared_task(task: Task[..., Any]) -> Task[..., Any]:
    """Return the task as it was declared; raise InvalidTask if a worker would not find it under its path."""
    found = _attribute(task.func.__module__, task.func.__qualname__)
    if isinstance(found, Task) and _is_task_of(found, task):
        if is_ours(found):
            return found
        raise InvalidTask(
            f"{task.module_path}: expected a task that was declared for a GraphileWorkerBackend, got a task of the "
            f"backend {found.backend!r}. A worker runs no other tasks: write @task(backend={task.backend!r})."
        )
    raise InvalidTask(
        f"A worker imports a task by the path of its function: expected the task at {task.module_path!r}, got "
        f"{found!r}. Decorate the function where it is defined, and keep its name."
    )


def is_declared(task: Task[..., Any]) -> bool:
    """Return whether the module has this task already, so that another ``Task`` of the function is a copy."""
    return _is_task_of(_attribute(task.func.__module__, task.func.__qualname__), task)


def _is_task_of(found: Any, task: Task[..., Any]) -> bool:
    return isinstance(found, Task) and found.func is task.func


def _attribute(module: str, path: str) -> Any:
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found
