"""``reschedule``: change when, how often and with which priority jobs run."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker import api
from django_graphile_worker.jobs import Job
from django_graphile_worker.management.operator import arguments
from django_graphile_worker.management.operator.change_by_ids import ChangeByIds
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options


class Reschedule(ChangeByIds):
    name = "reschedule"
    summary = "Change when, how often and with which priority jobs run."
    description = (
        "Options that are not given leave their values unchanged. A failed job that gets a time gets all its attempts "
        "again, unless --attempts or --max-attempts say otherwise. Running jobs are not changed."
    )
    examples = ("42 --run-at +1h", "42 43 --run-at +1h --priority 5", "42 --run-at 2027-01-01T08:00")
    done = "Rescheduled"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--run-at",
            type=arguments.run_at,
            metavar="TIME",
            help="Run at this time: now, +5m, or a time like 2026-05-01T12:00.",
        )
        parser.add_argument(
            "--priority", type=arguments.whole, metavar="N", help="Set the priority; lower numbers run first."
        )
        parser.add_argument(
            "--attempts", type=arguments.not_negative, metavar="N", help="Set the number of attempts made so far."
        )
        parser.add_argument(
            "--max-attempts", type=arguments.positive, metavar="N", help="Set the number of attempts allowed."
        )

    def change(self, job_ids: Sequence[int], console: Console, options: Options) -> list[Job]:
        changes = {name: options[name] for name in ("run_at", "priority", "attempts", "max_attempts")}
        if all(value is None for value in changes.values()):
            raise CommandError("Expected --run-at, --priority, --attempts or --max-attempts, got none of them.")
        jobs = api.reschedule_jobs(job_ids, **changes, **console.place)
        spent = [f"#{job.id}" for job in jobs if job.attempts >= job.max_attempts]
        if spent:
            console.warn(f"{', '.join(spent)} will still not run: no attempts left. Set --attempts 0, too.")
        return jobs
