"""Calls an async task, and awaits what a task returns, if it is awaitable."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_graphile_worker.worker.execution.binding import Binding
    from django_graphile_worker.worker.execution.job_run import JobRun
    from django_graphile_worker.worker.execution.task_helpers import Helpers


# Results of these types hold neither awaitables nor exceptions. Most jobs return such a result, and skip the checks.
PLAIN_RESULTS = frozenset({type(None), bool, int, float, str, bytes, dict})


def coroutine_of(
    run: JobRun, binding: Binding, build_helpers: Callable[[JobRun], Helpers]
) -> Callable[[], Awaitable[Any]]:
    """Return the function that calls the async task of a job. The payload is decoded now."""
    payload = run.decode()
    if binding.is_plain:
        return lambda: awaited(binding.function(payload))
    helpers = build_helpers(run)
    return lambda: awaited(binding.call(payload, helpers))


async def awaited(result: Any) -> Any:
    """Return the result of a task, with every awaitable in it awaited.

    A task may return an awaitable: a decorator hides its ``async def``, or an ``await`` is missing.
    """
    while inspect.isawaitable(result):
        result = await result
        if type(result) in PLAIN_RESULTS:
            return result
    if not holds_awaitables(result):
        return result
    # Late import: few tasks return awaitables in a list.
    from django_graphile_worker.worker.execution import results

    return await results.gather(result)


def holds_awaitables(results: Any) -> bool:
    return isinstance(results, list | tuple) and any(map(inspect.isawaitable, results))
