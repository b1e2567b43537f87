"""Which tasks keep their results, for statements that end jobs without having run them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django_graphile_worker.frozen import Frozen

if TYPE_CHECKING:
    from django_graphile_worker.conf import Settings
    from django_graphile_worker.registry import Task


class ResultKeeping(Frozen):
    """For how many seconds the results of tasks are kept (None: not at all), and whether there is a history."""

    # The seconds of tasks that differ from the default, by identifier.
    seconds: Mapping[str, float | None]
    default: float | None = None
    has_history: bool = False

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of PARAMETERS."""
        keeps: Sequence[float | None] = list(self.seconds.values())
        return {
            "kept_tasks": list(self.seconds),
            "keeps": keeps,
            "default_keep": self.default,
            "has_history": self.has_history,
        }


# The arguments that every function takes which records what happened to jobs that it does not run.
PARAMETERS = (
    "%(kept_tasks)s::pg_catalog.text[], %(keeps)s::pg_catalog.float8[], %(default_keep)s::pg_catalog.float8, "
    "%(has_history)s::pg_catalog.bool"
)
NOTHING_KEPT = ResultKeeping(seconds={})

# The outcome that the history has for jobs that a call of the API ended.
REMOVED_BY_OPERATOR = 6
FAILED_BY_OPERATOR = 7
# The class of exception that results name for a job that an operator failed.
OPERATOR_ERROR = "django_graphile_worker.exceptions.FailedByOperatorError"

# A clause of a statement, for the jobs that a function of the schema ended: CALLED has their rows in a column ``job``.
# PostgreSQL does not run a clause that nothing reads, so the statement has the condition IS_RECORDED.
CALLED = "called"
RECORD_OPERATOR = f"""recorded as materialized (
            select :SCHEMA._private_record_operator_v1(
                array(select {CALLED}.job from {CALLED}), %(outcome)s::pg_catalog.int2, '{OPERATOR_ERROR}',
                {PARAMETERS})
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
