"""``run-next``: move due jobs before all others."""

from __future__ import annotations

from collections.abc import Sequence

from django_graphile_worker.api.change import run_next
from django_graphile_worker.jobs import Job
from django_graphile_worker.management.operator.change_by_ids import ChangeByIds
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options


class RunNext(ChangeByIds):
    name = "run-next"
    summary = "Move due jobs before all others."
    description = (
        "Due jobs get a priority one lower than that of every other job that waits. A job of a queue still waits until "
        "the queue is free, and a limited job for its limit. Running jobs are not changed."
    )
    examples = ("42", "42 43 44")
    done = "Next:"
    expected = ("that is due", "that are due")
    unsuited = {
        "ready": "is before all other jobs already",
        "limited": "is before all other jobs already",
        "scheduled": "is not due yet (use run-now)",
        "retrying": "is not due yet (use run-now)",
        "failed": "has failed permanently (use retry)",
    }

    def change(self, job_ids: Sequence[int], console: Console, options: Options) -> list[Job]:
        return run_next(job_ids, **console.place)
