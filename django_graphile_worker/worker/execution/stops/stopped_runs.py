"""The error of a run that was stopped at its deadline."""

from __future__ import annotations

from django_graphile_worker.exceptions import PermanentFailure, RetryLater, TaskTimeout
from django_graphile_worker.worker.execution.stops.stop_of_run import StopOfRun


def timeout_error(stopping: StopOfRun, error: BaseException) -> BaseException:
    """Return the error of an attempt that ended with this exception after its deadline.

    A task that reacts to ``helpers.abort`` may decide when it runs again, or that it does not. Every other exception,
    such as the error of a query that was cancelled, is a consequence of the stop.
    """
    if isinstance(error, RetryLater | PermanentFailure):
        return error
    if isinstance(error, TaskTimeout):
        # Python made it without arguments.
        error.args = (stopping.stop.reason,)
        return error
    timeout = TaskTimeout(stopping.stop.reason)
    timeout.__cause__ = error
    return timeout


def remark(stopping: StopOfRun) -> str:
    """Return where the task was at its deadline, and whether it stopped."""
    where = f"At the deadline the task was here:\n{stopping.stack_text}" if stopping.stack_text else ""
    left = "It did not stop: the run ended without its thread." if stopping.is_without_thread else ""
    return "\n".join(filter(None, (left, where)))
