"""The call of a Django task as the payload of a job, and back; its arguments and return value as JSON.

``normalize_json()`` of the framework lets pass what JSON cannot hold (NaN, infinity, keys that are not strings).
``normalized()`` refuses it, and names its place: ``args[0].lines[2]``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django_graphile_worker.backend.compat import DEFAULT_TASK_BACKEND_ALIAS, Task
from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.payloads import key_step, text_problem

# The framework walks values recursively, with a few calls for each level.
MAX_DEPTH = 150
_TOO_DEEP = f"expected at most {MAX_DEPTH} levels, and no cycles, got a value that is nested more deeply"


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a call, and how its task differed from the defaults of the framework.

    A payload has the keys ``args`` and ``kwargs``, and ``using`` if the task had a priority, a time or another backend:
    a result has them long after the job has gone.
    """

    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    priority: int = 0
    # A time, or a timedelta from the moment at which the job was added.
    run_after: datetime | timedelta | None = None
    backend: str = DEFAULT_TASK_BACKEND_ALIAS

    @classmethod
    def of(cls, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, backend: str) -> Call:
        """Return a call with arguments that JSON can hold; raise PayloadError with the place of any other."""
        return cls(
            args=normalized(args, "args"),
            kwargs=normalized(kwargs, "kwargs"),
            priority=int(task.priority),
            run_after=task.run_after,
            backend=backend,
        )

    @classmethod
    def from_payload(cls, payload: Any) -> Call:
        """Return the call of a payload; raise PayloadError, which is final, if it is no call of a Django task."""
        payload = {} if payload is None else payload
        args = payload.get("args", []) if isinstance(payload, dict) else None
        kwargs = payload.get("kwargs", {}) if isinstance(payload, dict) else None
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            error = PayloadError('expected {"args": [...], "kwargs": {...}}, the arguments of a Django task, at $.')
            error.is_misfit = True
            raise error
        using = payload.get("using")
        return cls(args, kwargs, **(_from_json(using) if isinstance(using, dict) else {}))

    def to_payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = {"args": self.args, "kwargs": self.kwargs}
        using = self._to_json()
        return payload | {"using": using} if using else payload

    def run_after_of(self, added_at: datetime | None) -> datetime | None:
        """Return the time before which the job does not run, if it was added at ``added_at``."""
        if not isinstance(self.run_after, timedelta):
            return self.run_after
        return None if added_at is None else added_at + self.run_after

    def _to_json(self) -> dict[str, Any]:
        using: dict[str, Any] = {}
        if self.priority:
            using["priority"] = self.priority
        if self.run_after is not None:
            time = self.run_after
            using["run_after"] = time.total_seconds() if isinstance(time, timedelta) else time.isoformat()
        if self.backend != DEFAULT_TASK_BACKEND_ALIAS:
            using["backend"] = self.backend
        return using


def _from_json(using: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a call. The payload may come from anywhere, so a value of another kind is left out."""
    found: dict[str, Any] = {}
    if isinstance(using.get("priority"), int):
        found["priority"] = using["priority"]
    if isinstance(using.get("backend"), str):
        found["backend"] = using["backend"]
    run_after = using.get("run_after")
    try:
        if isinstance(run_after, str):
            found["run_after"] = datetime.fromisoformat(run_after)
        elif isinstance(run_after, int | float):
            found["run_after"] = timedelta(seconds=run_after)
    except (ValueError, OverflowError):
        pass
    return found


class UnsupportedValueError(PayloadError, TypeError):
    """An argument or a return value of a type that JSON does not have."""


class _Unsuitable(Exception):  # noqa: N818 - never leaves this module
    """A part of a value that JSON cannot hold; each container on the way up puts its step before the others."""

    def __init__(self, expectation: str, kind: type[PayloadError]) -> None:
        self.expectation = expectation
        self.kind = kind
        self.steps: list[str] = []


def normalized(value: Any, name: str) -> Any:
    """Return the value with the types of JSON only; raise PayloadError with the place below ``name``."""
    try:
        return _normalized(value, 0)
    except RecursionError:
        raise PayloadError(f"{_TOO_DEEP} at {name}.", path=name) from None
    except _Unsuitable as error:
        path = name + "".join(reversed(error.steps))
        shown = path if len(path) <= 200 else f"{path[:100]}…{path[-80:]}"
        raise error.kind(f"{error.expectation} at {shown}.", path=path) from None


def _normalized(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is int or kind is bool or value is None:
        return value
    if isinstance(value, str):
        return _storable(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise _Unsuitable(f"expected a finite number, got {value!r}", PayloadError)
    if isinstance(value, int):
        return value
    if depth >= MAX_DEPTH:
        raise _Unsuitable(_TOO_DEEP, PayloadError)
    return _normalized_container(value, depth)


def _normalized_container(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return {_key(key): _part(item, key_step(key), depth) for key, item in value.items()}
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise _Unsuitable("Unsupported value: expected text, got bytes that are not UTF-8", PayloadError) from None
    if isinstance(value, Sequence):
        return [_part(item, f"[{index}]", depth) for index, item in enumerate(value)]
    message = f"Unsupported type: expected a value that JSON can hold, got {type(value).__name__}{_way_out(value)}"
    raise _Unsuitable(message, UnsupportedValueError)


def _part(value: Any, step: str, depth: int) -> Any:
    try:
        return _normalized(value, depth + 1)
    except _Unsuitable as error:
        error.steps.append(step)
        raise


def _storable(text: str) -> str:
    problem = None if text.isascii() and "\x00" not in text else text_problem(text)
    if problem:
        raise _Unsuitable(problem, PayloadError)
    return text


def _key(key: Any) -> str:
    if isinstance(key, str):
        return _storable(key)
    raise _Unsuitable(f"expected strings as keys, got {key!r} ({type(key).__name__})", UnsupportedValueError)


def _way_out(value: Any) -> str:
    if hasattr(type(value), "_meta") and hasattr(value, "pk"):
        return " (pass its pk, and get the row in the task)"
    if isinstance(value, datetime):
        return " (pass value.isoformat())"
    if isinstance(value, set | frozenset):
        return " (pass a list)"
    return " (pass text or a number that the task converts)"
