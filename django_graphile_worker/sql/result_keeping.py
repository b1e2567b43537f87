"""Which tasks keep their results, for the statements that end jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django_graphile_worker.conf import Settings
from django_graphile_worker.registry import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultKeeping:
    """For how many seconds the results of tasks are kept (None: not at all), and whether there is a history."""

    # The seconds of tasks that differ from the default, by identifier.
    seconds: Mapping[str, float | None]
    default: float | None = None
    has_history: bool = False

    def parameters(self) -> dict[str, Any]:
        """Return the parameter of KEEPING."""
        kept = {"tasks": dict(self.seconds), "default": self.default, "history": self.has_history}
        return {"keeping": json.dumps(kept)}


# The argument of every function that records how jobs ended.
KEEPING = "%(keeping)s::pg_catalog.jsonb"
NOTHING_KEPT = ResultKeeping(seconds={})

# The classes of exceptions that results name for a job that an operator failed, and for one that was cancelled.
OPERATOR_ERROR = "django_graphile_worker.exceptions.FailedByOperatorError"
CANCELLED = "django_graphile_worker.exceptions.JobCancelledError"

# A clause of a statement, for the jobs that a function of the schema ended: CALLED has their rows in a column ``job``.
# PostgreSQL does not run a clause that nothing reads, so the statement has the condition IS_RECORDED.
CALLED = "called"
RECORD_OPERATOR = f"""recorded as materialized (
            select :SCHEMA._private_record_operator(
                array(select {CALLED}.job from {CALLED}), %(outcome)s::pg_catalog.int2, {KEEPING})
        )"""
IS_RECORDED = "(select pg_catalog.count(*) from recorded) operator(pg_catalog.=) 1"


def keeping(settings: Settings, tasks: Iterable[Task[Any, Any]]) -> ResultKeeping:
    """Return what these tasks keep under these settings."""
    default = settings.keep_results
    seconds = {task.identifier: task.result_seconds(default) for task in tasks}
    return ResultKeeping(
        seconds={identifier: each for identifier, each in seconds.items() if each != default},
        default=default,
        has_history=settings.history is not None,
    )
