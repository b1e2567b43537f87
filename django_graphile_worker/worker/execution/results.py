"""The result of a task: awaitables in it are awaited, exceptions in it are failures.

For an array payload a task may return one result for each item. Then only the items that failed are tried again.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Sequence
from json.decoder import WHITESPACE  # type: ignore[attr-defined]
from typing import Any

from django_graphile_worker.exceptions import BatchFailure, InvalidTypeError
from django_graphile_worker.task_functions import UNRUN, is_generator
from django_graphile_worker.worker.execution.job_run import JobRun

logger = logging.getLogger("django_graphile_worker.worker")

# Results of these types may be failures; all others need no check.
_FAILURE_TYPES = (BaseException, type, *UNRUN)
# Results of these types hold neither awaitables nor exceptions. Most jobs return such a result, and skip the checks.
PLAIN_RESULTS = frozenset({type(None), bool, int, float, str, bytes, dict})
_decoder = json.JSONDecoder()


async def awaited(result: Any) -> Any:
    """Return the result of a task, with every awaitable in it awaited.

    A task may return an awaitable: a decorator hides its ``async def``, or an ``await`` is missing.
    """
    while inspect.isawaitable(result):
        result = await result
        if type(result) in PLAIN_RESULTS:
            return result
    return await _gather(result) if holds_awaitables(result) else result


def holds_awaitables(results: Any) -> bool:
    return isinstance(results, list | tuple) and any(map(inspect.isawaitable, results))


async def _gather(results: Sequence[Any]) -> list[Any]:
    """Await what is awaitable, all at once. An exception that is raised becomes the result."""
    return list(await asyncio.gather(*map(_awaited_or_error, results)))


async def _awaited_or_error(result: Any) -> Any:
    try:
        while inspect.isawaitable(result):
            result = await result
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return error
    except BaseException as error:
        return error
    return result


def raise_task_failures(run: JobRun, result: Any) -> None:
    """Raise the exceptions that the result of a task holds. Everything awaitable in it has been awaited."""
    raise_failures(run, result)
    if isinstance(result, list | tuple) and run.item_count not in (None, len(result)):
        _warn_of_length(run, len(result))


def raise_failures(run: JobRun, result: Any) -> None:
    """Raise the exceptions that a result holds: of single items as a BatchFailure, all others as they are."""
    results = result if isinstance(result, list | tuple) else (result,)
    if not any(isinstance(each, _FAILURE_TYPES) for each in results):
        return
    _raise_failure_of_job(run, result)
    if failures := _failures(results):
        # The causes are chained, so that a traceback and an error tracker show them.
        raise BatchFailure(failures, len(results)) from _as_one(list(failures.values()))


def _raise_failure_of_job(run: JobRun, result: Any) -> None:
    """Raise a failure that belongs to no single item, or an error for an iterator that never ran: the job fails."""
    _refuse_unrun(run, result if isinstance(result, list | tuple) else (result,))
    if not isinstance(result, list | tuple):
        if _is_failure(result):
            raise _as_raised(result)
    elif len(result) != run.item_count and (failures := _failures(result)):
        raise _as_one(list(failures.values()), f"{len(failures)} of {len(result)} results are failures")


def _failures(results: Sequence[Any]) -> dict[int, BaseException]:
    return {index: _as_raised(result) for index, result in enumerate(results) if _is_failure(result)}


def _is_failure(result: Any) -> bool:
    return isinstance(result, BaseException) or (isinstance(result, type) and issubclass(result, BaseException))


def _as_raised(failure: Any) -> BaseException:
    """Return the exception; for a class, an instance of it, as ``raise`` makes it."""
    if isinstance(failure, BaseException):
        return failure
    try:
        made: BaseException = failure()
    except Exception as error:
        return error
    return made


def _as_one(failures: list[BaseException], message: str = "failed items") -> BaseException:
    return failures[0] if len(failures) == 1 else BaseExceptionGroup(message, failures)


def _warn_of_length(run: JobRun, count: int) -> None:
    logger.warning(
        "%s #%s returned %s results for %s items: the job counts as done.",
        run.identifier,
        run.claim.id,
        count,
        run.item_count,
    )


def _refuse_unrun(run: JobRun, results: Sequence[Any]) -> None:
    """Raise InvalidTypeError for a generator or a map: its work has not been done, so the job must not be deleted."""
    for result in results:
        if isinstance(result, UNRUN):
            name = type(result).__name__
            what = "generator" if is_generator(result) else name
            raise InvalidTypeError(
                f"{run.identifier} returned a {what}, of which nothing has run. Loop over it inside the task."
            )


def remaining(payload_text: str, failure: BatchFailure) -> str | None:
    """Return an array of the failed items as text; None if the payload does not have as many items as results."""
    items = _items(payload_text)
    if len(items) != failure.count:
        return None
    return "[" + ",".join(items[index] for index in failure.failures) + "]"


def _items(text: str) -> list[str]:
    """Return the text of each item of a JSON array; an empty list if the text is not an array."""
    items: list[str] = []
    position = _after_whitespace(text, 0)
    if text[position] != "[":
        return items
    position += 1
    while text[(position := _after_whitespace(text, position))] != "]":
        _, end = _decoder.raw_decode(text, position)
        items.append(text[position:end])
        position = _after_whitespace(text, end)
        if text[position] == ",":
            position += 1
    return items


def _after_whitespace(text: str, position: int) -> int:
    # A private interface of json; a test watches it.
    return int(WHITESPACE.match(text, position).end())
