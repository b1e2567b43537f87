"""The base class of verbs that change jobs by their ids: ``run-now``, ``retry``, ``complete`` and others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker.jobs import Job
from django_graphile_worker.management.operator import arguments
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted, job_as_dict, job_line
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql.inspection.job_search import search


class ChangeByIds(Verb):
    """A verb that takes ids of jobs. It changes the jobs that it can, then raises an error about the others."""

    done: str
    # The states to which the verb does not apply, each with the reason; running jobs have theirs here.
    unsuited: ClassVar[Mapping[str, str]] = {}
    # What the jobs were expected to be, for one job and for several.
    expected: ClassVar[tuple[str, str]] = ("that waits", "that wait")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_ids", nargs="+", type=arguments.job_id, metavar="ID", help="The ids of the jobs.")

    def run(self, console: Console, options: Options) -> None:
        job_ids = list(dict.fromkeys(options["job_ids"]))
        changed = self.change(job_ids, console, options)
        self._report(console, changed)
        left = [job_id for job_id in job_ids if job_id not in {job.id for job in changed}]
        if left:
            raise CommandError(self._complaint(console, job_ids, left))

    @abstractmethod
    def change(self, job_ids: Sequence[int], console: Console, options: Options) -> list[Job]:
        """Change these jobs, except for running jobs; return the changed jobs."""

    def _report(self, console: Console, changed: Sequence[Job]) -> None:
        if console.is_json:
            console.dump([job_as_dict(job) for job in changed])
            return
        now = console.now()
        for job in changed:
            console.say(console.style.SUCCESS(f"{self.done} {job_line(job, now)}"))

    def _complaint(self, console: Console, job_ids: Sequence[int], left: Sequence[int]) -> str:
        with console.reading() as (cursor, schema, _):
            states = {row.id: row.state for row in search.rows(cursor, left, schema=schema)}
        whys = [f"#{job_id} {self._why_left(states.get(job_id))}" for job_id in left]
        count = len(job_ids) - len(left)
        wait = self.expected[len(job_ids) > 1]
        return f"Expected {counted(len(job_ids), 'job')} {wait}, got {count or 'none'}: {'; '.join(whys)}."

    def _why_left(self, state: str | None) -> str:
        if state is None:
            return "does not exist (completed and removed jobs are deleted)"
        if state == "running":
            return "is running, and was not changed"
        return self.unsuited.get(state) or f"was running a moment ago and is {state} now: try again"
