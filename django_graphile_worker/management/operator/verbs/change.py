"""Changing jobs that wait: ``complete``, ``fail``, ``reschedule`` and ``remove``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker import api
from django_graphile_worker.jobs import Job
from django_graphile_worker.management.operator import arguments
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted, job_as_dict, job_line
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql.inspection import search


class ChangeByIds(Verb):
    """A verb for jobs by their ids. Those it could not change are an error, after the others are changed."""

    done: str

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_ids", nargs="+", type=arguments.job_id, metavar="ID", help="Ids of jobs.")

    def run(self, desk: Console, options: Options) -> None:
        job_ids = list(dict.fromkeys(options["job_ids"]))
        changed = self.change(job_ids, desk, options)
        self._tell(desk, changed)
        left = [job_id for job_id in job_ids if job_id not in {job.id for job in changed}]
        if left:
            raise CommandError(self._complaint(desk, job_ids, left))

    @abstractmethod
    def change(self, job_ids: Sequence[int], desk: Console, options: Options) -> list[Job]:
        """Change what can be changed of these jobs; return those."""

    def _tell(self, desk: Console, changed: Sequence[Job]) -> None:
        if desk.is_json:
            desk.dump([job_as_dict(job) for job in changed])
            return
        now = desk.now()
        for job in changed:
            desk.say(desk.style.SUCCESS(f"{self.done} {job_line(job, now)}"))

    def _complaint(self, desk: Console, job_ids: Sequence[int], left: Sequence[int]) -> str:
        with desk.reading() as (cursor, schema, _):
            states = {row.id: row.state for row in search.rows(cursor, left, schema=schema)}
        whys = [f"#{job_id} {_why_left(states.get(job_id))}" for job_id in left]
        count = len(job_ids) - len(left)
        wait = "that waits" if len(job_ids) == 1 else "that wait"
        return f"Expected {counted(len(job_ids), 'job')} {wait}, got {count or 'none'}: {'; '.join(whys)}."


def _why_left(state: str | None) -> str:
    if state is None:
        return "is not there (completed and removed jobs are deleted)"
    if state == "running":
        return "is running, and left to its worker"
    return f"was running a moment ago and is {state} now: try again"


class Complete(ChangeByIds):
    name = "complete"
    summary = "Delete jobs as if they had succeeded."
    description = "Deletes waiting or failed jobs without running them. Running jobs are left alone."
    examples = ("42", "42 43 44")
    done = "Completed"

    def change(self, job_ids: Sequence[int], desk: Console, options: Options) -> list[Job]:
        return api.complete_jobs(job_ids, **desk.place)


class Fail(ChangeByIds):
    name = "fail"
    summary = "Let jobs have failed for good."
    description = "Uses up the attempts of waiting jobs, which keeps them to be looked at. Running jobs are left alone."
    examples = ("42", '42 43 --reason "The customer is gone."')
    done = "Permanently failed"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--reason", metavar="TEXT", help="What to write into last_error.")

    def change(self, job_ids: Sequence[int], desk: Console, options: Options) -> list[Job]:
        return api.permanently_fail_jobs(job_ids, options["reason"], **desk.place)


class Reschedule(ChangeByIds):
    name = "reschedule"
    summary = "Change when, how often and how urgently jobs run."
    description = (
        "Changes waiting or failed jobs; what is not given stays. A failed job is tried again with "
        "--attempts 0 --run-at now. Running jobs are left alone."
    )
    examples = ("42 --run-at now --attempts 0", "42 43 --run-at +1h --priority 5", "42 --run-at 2027-01-01T08:00")
    done = "Rescheduled"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--run-at", type=arguments.run_at, metavar="TIME", help="now, +5m, or a time like 2026-05-01T12:00."
        )
        parser.add_argument("--priority", type=arguments.whole, metavar="N", help="Lower numbers run first.")
        parser.add_argument("--attempts", type=arguments.not_negative, metavar="N", help="Attempts counted so far.")
        parser.add_argument("--max-attempts", type=arguments.positive, metavar="N", help="Attempts allowed.")

    def change(self, job_ids: Sequence[int], desk: Console, options: Options) -> list[Job]:
        changes = {name: options[name] for name in ("run_at", "priority", "attempts", "max_attempts")}
        if all(value is None for value in changes.values()):
            raise CommandError("Expected --run-at, --priority, --attempts or --max-attempts, got none of them.")
        jobs = api.reschedule_jobs(job_ids, **changes, **desk.place)
        spent = [f"#{job.id}" for job in jobs if job.attempts >= job.max_attempts]
        if spent:
            desk.warn(f"{', '.join(spent)} will still not run: no attempts left. --attempts 0 gives them back.")
        return jobs


class Remove(Verb):
    name = "remove"
    summary = "Remove jobs by their keys."
    description = "Deletes the job with each key. A running one is not stopped: it loses its key, and is not retried."
    examples = ("search-index", "report:7 report:8")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_keys", nargs="+", metavar="KEY", help="Keys of jobs.")

    def run(self, desk: Console, options: Options) -> None:
        found = {key: api.remove_job(key, **desk.place) for key in dict.fromkeys(options["job_keys"])}
        jobs = [job for job in found.values() if job is not None]
        if desk.is_json:
            desk.dump([job_as_dict(job) for job in jobs])
        else:
            self._tell(desk, jobs)
        missing = [repr(key) for key, job in found.items() if job is None]
        if missing:
            raise CommandError(f"Expected a job with each key, got none with {', '.join(missing)}.")

    def _tell(self, desk: Console, jobs: Sequence[Job]) -> None:
        now = desk.now()
        for job in jobs:
            desk.say(desk.style.SUCCESS(f"Removed {job_line(job, now)}"))
            # A row that comes back without its key is still there, in its worker's hands.
            if job.key is None:
                desk.warn(f"#{job.id} is running and goes on to its end; it has lost its key, and is not retried.")
