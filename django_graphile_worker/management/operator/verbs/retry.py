"""``retry``: try failed jobs again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker.api.change import retry_jobs
from django_graphile_worker.jobs import Job
from django_graphile_worker.management.operator import arguments
from django_graphile_worker.management.operator.arguments import did_you_mean
from django_graphile_worker.management.operator.change_by_ids import ChangeByIds
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted
from django_graphile_worker.management.operator.known_names import chosen_criteria
from django_graphile_worker.management.operator.verb import Options
from django_graphile_worker.sql.inspection.error_groups import error_groups
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria

# The number of jobs that one transaction changes: small enough that no worker waits for it.
BATCH = 1_000


class Retry(ChangeByIds):
    name = "retry"
    summary = "Try failed jobs again, now and with all their attempts."
    description = (
        "Retry the jobs with these ids, or all permanently failed jobs that --task, --error (as errors lists it) or "
        "--all selects; with --state retrying, jobs that wait for their next attempt. Running jobs are not changed."
    )
    examples = (
        "42 43",
        "42 --payload '{\"order\": 1}'",
        "--task send_receipt",
        "--error TimeoutError --dry-run",
        "--all",
        "--all --state retrying",
    )
    done = "To be tried again:"
    expected = ("that has failed", "that have failed")
    unsuited = {
        "ready": "has not failed (run-next moves it to the front)",
        "limited": "has not failed, and waits for a limit",
        "scheduled": "has not failed (use run-now)",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_ids", nargs="*", type=arguments.job_id, metavar="ID", help="The ids of the jobs.")
        parser.add_argument("--task", metavar="TASK", help="Choose all failed jobs of this task identifier.")
        parser.add_argument("--error", metavar="ERROR", help="Choose all jobs that failed with this class of error.")
        parser.add_argument("--all", action="store_true", help="Choose all failed jobs.")
        parser.add_argument(
            "--state",
            choices=["failed", "retrying"],
            default="failed",
            help="Choose jobs in this state (default: failed).",
        )
        parser.add_argument(
            "--payload",
            metavar="PAYLOAD",
            help="Give the jobs this payload, as JSON or JSON5; - reads it from standard input. Only with ids.",
        )
        parser.add_argument("--dry-run", action="store_true", help="Only count the jobs that would be tried again.")

    def run(self, console: Console, options: Options) -> None:
        is_choosing = bool(options["task"] or options["error"] or options["all"])
        if is_choosing == bool(options["job_ids"]):
            got = "both" if is_choosing else "neither"
            raise CommandError(f"Expected either ids of jobs or one of --task, --error and --all, got {got}.")
        if options["job_ids"]:
            super().run(console, options)
            return
        if options["payload"] is not None:
            raise CommandError("--payload: expected ids of jobs, got --task, --error or --all.")
        criteria = self._criteria(console, options)
        count = 0 if criteria is None else sum(self._retry_all(console, criteria, options["dry_run"]))
        verb = "would be" if options["dry_run"] else "will be"
        if console.is_json:
            console.dump({"jobs": count, "dry_run": options["dry_run"]})
        else:
            console.say(console.style.SUCCESS(f"{counted(count, 'job')} {verb} tried again."))

    def change(self, job_ids: Sequence[int], console: Console, options: Options) -> list[Job]:
        if options["dry_run"]:
            raise CommandError("--dry-run: expected --task, --error or --all, got ids.")
        given = {} if options["payload"] is None else {"payload": arguments.payload(options["payload"])}
        return retry_jobs(job_ids, **given, **console.place)

    def _criteria(self, console: Console, options: Options) -> Criteria | None:
        """Return the chosen criteria; None, after a warning, when the database has no such name."""
        with console.reading() as (cursor, schema, _):
            chosen = chosen_criteria(cursor, console, options, schema=schema)
            if chosen is None or options["error"] is None:
                return chosen
            names = {group.name for group in error_groups(cursor, schema=schema)}
        chosen_names = tuple(
            name for name in names if name == options["error"] or name.endswith(f".{options['error']}")
        )
        if not chosen_names:
            hint = did_you_mean(options["error"], {name.rpartition(".")[2] for name in names} | names)
            console.warn(f"No job has failed with {options['error']!r}.{hint}")
            return None
        return Criteria(state=chosen.state, tasks=chosen.tasks, error_names=chosen_names)

    def _retry_all(self, console: Console, criteria: Criteria, is_rehearsal: bool) -> Iterator[int]:
        """Retry batch by batch, each in a transaction of its own, and yield the number of jobs.

        The jobs are found before the first is changed: then none is missed because it changed its state meanwhile,
        and none that fails again is retried twice.
        """
        ids = self._ids(console, criteria)
        if is_rehearsal:
            yield len(ids)
            return
        for start in range(0, len(ids), BATCH):
            yield len(retry_jobs(ids[start : start + BATCH], **console.place))

    def _ids(self, console: Console, criteria: Criteria) -> list[int]:
        ids: list[int] = []
        after: str | None = None
        with console.reading() as (cursor, schema, _):
            while True:
                found = search.find(cursor, criteria, schema=schema, limit=BATCH, after=after)
                ids += found.ids
                after = found.next_token
                if after is None:
                    return ids
