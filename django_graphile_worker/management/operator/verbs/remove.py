"""``remove``: delete jobs by their keys."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker import api
from django_graphile_worker.jobs import Job
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import job_as_dict, job_line
from django_graphile_worker.management.operator.verb import Options, Verb


class Remove(Verb):
    name = "remove"
    summary = "Remove jobs by their keys."
    description = "Delete the job with each key. A running job finishes, without its key, and is not retried."
    examples = ("search-index", "report:7 report:8")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_keys", nargs="+", metavar="KEY", help="The keys of the jobs.")

    def run(self, console: Console, options: Options) -> None:
        found = {key: api.remove_job(key, **console.place) for key in dict.fromkeys(options["job_keys"])}
        jobs = [job for job in found.values() if job is not None]
        if console.is_json:
            console.dump([job_as_dict(job) for job in jobs])
        else:
            self._report(console, jobs)
        missing = [repr(key) for key, job in found.items() if job is None]
        if missing:
            raise CommandError(f"Expected a job with each key, got none with {', '.join(missing)}.")

    def _report(self, console: Console, jobs: Sequence[Job]) -> None:
        now = console.now()
        for job in jobs:
            console.say(console.style.SUCCESS(f"Removed {job_line(job, now)}"))
            # A row that is returned without its key is still in the table: its worker runs the job.
            if job.key is None:
                console.warn(f"#{job.id} is running and will finish; it has lost its key, and is not retried.")
