"""Awaits what a task returns, if it is awaitable."""

from __future__ import annotations

import inspect
from typing import Any


async def awaited(result: Any) -> Any:
    """Return the result of a task, with every awaitable in it awaited.

    A task may return an awaitable: a decorator hides its ``async def``, or an ``await`` is missing.
    """
    while inspect.isawaitable(result):
        result = await result
    if not holds_awaitables(result):
        return result
    # Late import: few tasks return awaitables in a list.
    from django_graphile_worker.worker.execution import results

    return await results.gather(result)


def holds_awaitables(results: Any) -> bool:
    return isinstance(results, list | tuple) and any(map(inspect.isawaitable, results))
