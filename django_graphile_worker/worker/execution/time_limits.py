"""The time limit around a call of a task."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from django_graphile_worker.worker.execution.job_run import JobRun

if TYPE_CHECKING:
    from typing import Protocol

    class TimeLimits(Protocol):
        """The time limits of runs, as a call of a task begins and ends them."""

        def begin(self, run: JobRun, seconds: float, /) -> None:
            """Begin the time limit of a run, on its thread."""

        def end(self, run: JobRun, /) -> None:
            """End the time limit of a run."""


def limited(invoke: Callable[[JobRun], Any], seconds: float, limits: TimeLimits | None) -> Callable[[JobRun], Any]:
    """Return the function with a time limit. Without ``limits``, as in tests, the task only learns its deadline."""
    if limits is None:

        def invoke_with_deadline(run: JobRun) -> Any:
            run.deadline = monotonic() + seconds
            return invoke(run)

        return invoke_with_deadline

    begin, end = limits.begin, limits.end

    def invoke_limited(run: JobRun) -> Any:
        begin(run, seconds)
        try:
            return invoke(run)
        finally:
            end(run)

    return invoke_limited
