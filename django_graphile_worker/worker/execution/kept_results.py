"""The result of a task that keeps its results, as JSON."""

from __future__ import annotations

from typing import Any

from django_graphile_worker import payloads
from django_graphile_worker.exceptions import PayloadError, ResultError

_WAY_OUT = "Return plain values, or keep no result: @task(keep_result=False)."


def encode_result(identifier: str, result: Any, *, max_size: int) -> str:
    """Return the JSON text of a result; raise ResultError with the part of it that JSON cannot hold.

    The error is final: the task has done its work, and another attempt would repeat it and return the same.
    """
    try:
        return payloads.encode(result, max_size=max_size)
    except PayloadError as error:
        text = str(error).removeprefix("payload: ")
        raise ResultError(f"the result of {identifier}: {text} {_WAY_OUT}") from None
