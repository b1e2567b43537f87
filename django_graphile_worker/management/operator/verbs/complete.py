"""``complete`` or ``delete``: delete jobs, as if they had succeeded."""

from __future__ import annotations

from collections.abc import Sequence

from django_graphile_worker import api
from django_graphile_worker.jobs import Job
from django_graphile_worker.management.operator.change_by_ids import ChangeByIds
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options


class Complete(ChangeByIds):
    name = "complete"
    aliases = ("delete",)
    summary = "Delete jobs as if they had succeeded."
    description = "Waiting and failed jobs are deleted without being run. Running jobs are not changed."
    examples = ("42", "42 43 44")
    done = "Deleted"

    def change(self, job_ids: Sequence[int], console: Console, options: Options) -> list[Job]:
        return api.complete_jobs(job_ids, **console.place)
