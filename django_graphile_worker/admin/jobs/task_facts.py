"""What the form that adds a job says about a task: its docstring, its parameters, and the defaults of its jobs."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django_graphile_worker import registry, task_functions
from django_graphile_worker.admin import formatting
from django_graphile_worker.job_options import OPTIONS, Unique

# A longer docstring or signature is cut: the form is below it.
LONGEST_TEXT = 2_000
LONGEST_LABEL = 80
_QUOTED_TYPE = re.compile(r"(: |-> )'([^']*)'")


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """A task as the form shows it."""

    identifier: str
    # Whether this project defines the task.
    is_known: bool
    docstring: str = ""
    signature: str = ""
    # The fields of the payload, if its annotation is a class: name and type.
    payload_fields: tuple[tuple[str, str], ...] = ()
    defaults: tuple[tuple[str, str], ...] = ()


def short_description(identifier: str) -> str:
    """Return the first line of the docstring of a task."""
    line = _docstring(identifier).partition("\n")[0]
    return line if len(line) <= LONGEST_LABEL else f"{line[: LONGEST_LABEL - 1]}…"


def task_facts(identifier: str) -> TaskFacts:
    task: Any = registry.tasks.get(identifier)
    if task is None:
        return TaskFacts(identifier, is_known=False)
    function = _function_of(task)
    return TaskFacts(
        identifier,
        is_known=True,
        docstring=_docstring(identifier),
        signature=_signature(function),
        payload_fields=tuple(_payload_fields(function)),
        defaults=tuple(_defaults(task)),
    )


def _function_of(task: Any) -> Any:
    """Return the function of the project: of a Django task, the function that takes the arguments of a call."""
    django_task = getattr(task, "django_task", None) if "django_task" in vars(task) else None
    return task_functions.innermost(task.function if django_task is None else django_task.func)


def _docstring(identifier: str) -> str:
    task = registry.tasks.get(identifier)
    text = inspect.getdoc(_function_of(task)) if task is not None else None
    return (text or "")[:LONGEST_TEXT]


def _signature(function: Any) -> str:
    """Return a call as code; nothing for a function without a signature, or if a default cannot be shown."""
    try:
        shown = f"{function.__name__}{inspect.signature(function)}"
    except Exception:  # the defaults are objects of the project, whose repr() may raise anything
        return ""
    # With ``from __future__ import annotations`` the types are texts in quotes.
    return _QUOTED_TYPE.sub(r"\1\2", shown)[:LONGEST_TEXT]


def _payload_fields(function: Any) -> Iterator[tuple[str, str]]:
    """Yield the fields of the class that the payload is converted to: a dataclass or a model."""
    try:
        parameter = task_functions.read_signature(function).payload
        kind = typing.get_type_hints(function).get(parameter.name) if parameter is not None else None
        hints = typing.get_type_hints(kind) if isinstance(kind, type) and kind.__module__ != "builtins" else {}
    except Exception:  # an annotation may name what does not exist at run time
        return
    for name, hint in hints.items():
        if not name.startswith("_"):
            yield name, inspect.formatannotation(hint)


def _defaults(task: Any) -> Iterator[tuple[str, str]]:
    """Yield the options that jobs of the task get if the form leaves them empty."""
    for option in OPTIONS.values():
        value = getattr(task.defaults, option.name) if option.is_of_tasks else None
        if isinstance(value, Unique):
            value = value.key
        if isinstance(value, int):
            yield option.label, formatting.number(value)
        elif isinstance(value, str):
            yield option.label, str(value)
        elif isinstance(value, tuple) and value:
            yield option.label, ", ".join(value)
