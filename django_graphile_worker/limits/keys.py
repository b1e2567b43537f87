"""The keys of a job: the pairs (name of a limit, key text) that its payload makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError, PayloadError
from django_graphile_worker.limits.limit import FAIR_PREFIX, KeyTemplate, TaskLimit, valid_key_text

# The key text of jobs whose payload makes none: added by SQL or Node without the field, or the function raised. They
# share the numbers of the limit, and their task reports the mistake when it runs.
UNREADABLE = "<unreadable>"


class LimitedTask(Protocol):
    """The part of a task that this module uses."""

    @property
    def identifier(self) -> str: ...

    @property
    def limits(self) -> tuple[TaskLimit, ...]: ...

    def key_fields(self, payload: Any) -> Any:
        """Return the value whose fields a template names."""

    def key_from(self, function: Callable[..., Any], payload: Any) -> object:
        """Return what a key function returns for a payload."""


class JobKey(NamedTuple):
    """A key of a job: the name of a limit, and the text that the payload makes."""

    limit_name: str
    text: str


def keys_of(task: LimitedTask, payload_text: str) -> tuple[JobKey, ...]:
    """Return the keys of a job of the task, sorted by the name of the limit; never raise, whatever the payload is."""
    try:
        payload = json.loads(payload_text)
    except (ValueError, RecursionError):
        # A key without fields is readable all the same.
        payload = None
    return tuple(JobKey(limit.name, _readable_text(task, limit, payload)) for limit in task.limits)


def refuse_unkeyed(task: LimitedTask, payload_text: str) -> None:
    """Raise PayloadError if the payload of a job that is to be added lacks a field that a limit of its task needs."""
    payload = json.loads(payload_text)
    for limit in task.limits:
        try:
            _key_text(task, limit, payload)
        except PayloadError as error:
            message = f"payload: {error}: {_asking(limit)} of the task {task.identifier!r} needs it."
            raise PayloadError(message, path=error.path) from None


def _asking(limit: TaskLimit) -> str:
    """Return the name of the limit, or what its task has as fair=, as it is written in the code."""
    if limit.name.startswith(FAIR_PREFIX) and not limit.numbers.are_limiting:
        return f"fair={limit.name.removeprefix(FAIR_PREFIX)!r}"
    return f"the limit {limit.name!r}"


def _readable_text(task: LimitedTask, limit: TaskLimit, payload: Any) -> str:
    try:
        return _key_text(task, limit, payload)
    except Exception:
        # A function of the project may raise anything.
        return UNREADABLE


def _key_text(task: LimitedTask, limit: TaskLimit, payload: Any) -> str:
    if isinstance(limit.key, KeyTemplate):
        text = limit.key.fill(task.key_fields(payload))
    else:
        text = _returned_text(limit.key, task.key_from(limit.key, payload))
    try:
        return valid_key_text(text, "key text")
    except InvalidJobError as error:
        raise PayloadError(str(error).rstrip(".")) from None


def _returned_text(function: Callable[..., Any], value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    name = getattr(function, "__qualname__", repr(function))
    raise InvalidTypeError(
        f"Limit: expected the key function {name} to return a text or a whole number, got {value!r}. "
        "To share the numbers among several jobs, return the same text for them."
    )
