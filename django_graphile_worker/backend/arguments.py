"""The arguments and return values of Django tasks as JSON.

``normalize_json()`` of the framework lets pass what JSON cannot hold (NaN, infinity, keys that are not strings). These
functions refuse it, and name its place: ``args[0].lines[2]``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.payloads import key_step, text_problem

# The framework walks values recursively, with a few calls for each level.
MAX_DEPTH = 150
_TOO_DEEP = f"expected at most {MAX_DEPTH} levels, and no cycles, got a value that is nested more deeply"


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
