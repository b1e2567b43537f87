"""``fail``: mark jobs as permanently failed."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.management.base import CommandParser

from django_graphile_worker import api
from django_graphile_worker.jobs import Job
from django_graphile_worker.management.operator.change_by_ids import ChangeByIds
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options


class Fail(ChangeByIds):
    name = "fail"
    summary = "Mark jobs as permanently failed."
    description = (
        "The attempts of waiting jobs are used up, and the jobs are kept for inspection. The reason is added to the "
        "error that a job has. Failed jobs and running jobs are not changed."
    )
    examples = ("42", '42 43 --reason "The customer is gone."')
    done = "Permanently failed"
    unsuited = {"failed": "has failed permanently already"}

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--reason", metavar="TEXT", help="Add this text to last_error.")

    def change(self, job_ids: Sequence[int], console: Console, options: Options) -> list[Job]:
        return api.permanently_fail_jobs(job_ids, options["reason"], **console.place)
