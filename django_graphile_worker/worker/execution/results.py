"""What a task's result says: an exception in it is a failure, of one item where it can be put down to one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from django_graphile_worker.exceptions import BatchFailure, InvalidTypeError
from django_graphile_worker.signatures import UNRUN, is_generator
from django_graphile_worker.worker.execution.job_run import JobRun

logger = logging.getLogger("django_graphile_worker.worker")

# Results that may say that something went wrong: all others are passed at a glance.
_TELLING = (BaseException, type, *UNRUN)


def judge(run: JobRun, result: Any) -> None:
    """Raise what went wrong by the task's own account; everything awaitable in it has been awaited."""
    raise_failures(run, result)
    if isinstance(result, list | tuple) and run.item_count not in (None, len(result)):
        _warn_of_length(run, len(result))


def raise_failures(run: JobRun, result: Any) -> None:
    """Raise the exceptions that a result holds: of single items as a BatchFailure, all others as they are."""
    each = result if isinstance(result, list | tuple) else (result,)
    if not any(isinstance(one, _TELLING) for one in each):
        return
    _raise_misplaced(run, result)
    if failures := _failures(each):
        # The causes are chained, so that a traceback and an error tracker show them.
        raise BatchFailure(failures, len(each)) from _as_one(list(failures.values()))


def _raise_misplaced(run: JobRun, result: Any) -> None:
    """Raise what belongs to no item of an array payload, and refuse what nobody has run: the whole job fails."""
    _refuse_unrun(run, result if isinstance(result, list | tuple) else (result,))
    if not isinstance(result, list | tuple):
        if _is_failure(result):
            raise _as_raised(result)
    elif not _answers_for_items(run, result) and (failures := _failures(result)):
        raise _as_one(list(failures.values()), f"{len(failures)} of {len(result)} results are failures")


def _answers_for_items(run: JobRun, results: Sequence[Any]) -> bool:
    return len(results) == run.item_count


def _failures(results: Sequence[Any]) -> dict[int, BaseException]:
    return {index: _as_raised(result) for index, result in enumerate(results) if _is_failure(result)}


def _is_failure(result: Any) -> bool:
    return isinstance(result, BaseException) or (isinstance(result, type) and issubclass(result, BaseException))


def _as_raised(failure: Any) -> BaseException:
    """An exception class becomes what ``raise`` would make of it."""
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
    """A generator or a map is work that nobody has done; the job must not be deleted for it."""
    for result in results:
        if isinstance(result, UNRUN):
            name = type(result).__name__
            what = "generator: nothing of its body" if is_generator(result) else f"{name}: nothing of it"
            raise InvalidTypeError(
                f"expected {run.identifier} to return when it is done, got a {what} has run. "
                "Loop over it inside the task."
            )
