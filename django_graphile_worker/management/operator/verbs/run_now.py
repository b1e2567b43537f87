"""``run-now``: make waiting jobs due."""

from __future__ import annotations

from collections.abc import Sequence

from django_graphile_worker.api.change import run_now
from django_graphile_worker.jobs import Job
from django_graphile_worker.management.operator.change_by_ids import ChangeByIds
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options


class RunNow(ChangeByIds):
    name = "run-now"
    summary = "Make waiting jobs due now."
    description = (
        "Scheduled jobs, and jobs that wait for their next attempt, become due. Their attempts, their priority and "
        "their order stay. For failed jobs use retry. Running jobs are not changed."
    )
    examples = ("42", "42 43 44")
    done = "Due now:"
    expected = ("that is not due yet", "that are not due yet")
    unsuited = {
        "ready": "is due already (run-next moves it to the front)",
        "limited": "is due already, and waits for a limit",
        "failed": "has failed permanently (use retry)",
    }

    def change(self, job_ids: Sequence[int], console: Console, options: Options) -> list[Job]:
        return run_now(job_ids, **console.place)
