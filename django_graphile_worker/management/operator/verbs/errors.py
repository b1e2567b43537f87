"""What goes wrong, and trying it again: ``errors`` and ``retry``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.color import Style

from django_graphile_worker import api
from django_graphile_worker.jobs import Job
from django_graphile_worker.management.operator import arguments, tables, times
from django_graphile_worker.management.operator.arguments import did_you_mean
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted
from django_graphile_worker.management.operator.tables import Cell, Column
from django_graphile_worker.management.operator.verb import Options, Verb, is_known, narrowed
from django_graphile_worker.management.operator.verbs.change import ChangeByIds
from django_graphile_worker.sql.inspection import search
from django_graphile_worker.sql.inspection.criteria import Criteria
from django_graphile_worker.sql.inspection.error_groups import MOST_COUNTED, MOST_GROUPS, ErrorGroup, error_groups

# Jobs that are changed in one transaction: few enough to keep no worker waiting.
BATCH = 1_000


class Errors(Verb):
    name = "errors"
    summary = "List what jobs fail with, by task and error."
    description = (
        "Groups the jobs that failed, for good or until the next attempt, by their task and by the class of their "
        f"error, the largest group first. Lists up to {MOST_GROUPS} groups, and counts up to {MOST_COUNTED:,} jobs."
    )
    examples = ("", "--task send_receipt", "--json")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--task", metavar="TASK", help="Only jobs of this task identifier.")

    def run(self, desk: Console, options: Options) -> None:
        with desk.reading() as (cursor, schema, now):
            groups = error_groups(cursor, schema=schema)
            if options["task"] is not None:
                is_known(cursor, desk, "task", options["task"], schema=schema)
        chosen = [group for group in groups if options["task"] in (None, group.task_identifier)]
        if desk.is_json:
            desk.dump([_as_dict(group) for group in chosen])
        elif chosen:
            desk.table(_COLUMNS, [_row(group, now, desk.style) for group in chosen])
            desk.note("retry --task TASK --error ERROR tries the failed ones again.")
        else:
            desk.note("No job has failed.")


_COLUMNS = (
    Column("TASK", gives_way=True),
    Column("ERROR", gives_way=True),
    Column("FAILED", is_number=True),
    Column("RETRYING", is_number=True),
    Column("LAST SEEN"),
    Column("JOB", is_number=True),
    Column("MESSAGE", gives_way=True),
)


def _row(group: ErrorGroup, now: datetime, style: Style) -> list[Cell | str]:
    more = "+" if group.is_more else ""
    return [
        group.task_identifier,
        tables.brief_error(group.name),
        Cell(f"{group.failed}{more}", style.ERROR) if group.failed else "",
        Cell(f"{group.retrying}{more}", style.WARNING) if group.retrying else "",
        "" if group.last_seen is None else times.relative(group.last_seen, now),
        str(group.latest_id),
        tables.brief_error(group.latest_error).partition(": ")[2],
    ]


def _as_dict(group: ErrorGroup) -> dict[str, Any]:
    return {
        "task_identifier": group.task_identifier,
        "error": group.name,
        "failed": group.failed,
        "retrying": group.retrying,
        "is_capped": group.is_more,
        "first_seen": group.first_seen,
        "last_seen": group.last_seen,
        "latest_job_id": group.latest_id,
        "latest_error": group.latest_error,
    }


class Retry(ChangeByIds):
    name = "retry"
    summary = "Try failed jobs again, now and with all their attempts."
    description = (
        "Takes ids, or chooses by --task, by --error (as errors lists it) or, with --all, everything that has failed "
        "for good. Jobs that wait for their next attempt are chosen with --state retrying. Running jobs are left alone."
    )
    examples = ("42 43", "--task send_receipt", "--error TimeoutError --dry-run", "--all", "--all --state retrying")
    done = "To be tried again:"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_ids", nargs="*", type=arguments.job_id, metavar="ID", help="Ids of jobs.")
        parser.add_argument("--task", metavar="TASK", help="All failed jobs of this task identifier.")
        parser.add_argument("--error", metavar="ERROR", help="All jobs that failed with this class of error.")
        parser.add_argument("--all", action="store_true", help="All failed jobs.")
        parser.add_argument(
            "--state", choices=["failed", "retrying"], default="failed", help="Which jobs to choose (default: failed)."
        )
        parser.add_argument("--dry-run", action="store_true", help="Only tell how many jobs would be tried again.")

    def run(self, desk: Console, options: Options) -> None:
        is_choosing = bool(options["task"] or options["error"] or options["all"])
        if is_choosing == bool(options["job_ids"]):
            got = "both" if is_choosing else "neither"
            raise CommandError(f"Expected either ids of jobs or one of --task, --error and --all, got {got}.")
        if options["job_ids"]:
            super().run(desk, options)
            return
        criteria = self._criteria(desk, options)
        count = 0 if criteria is None else sum(self._retry_all(desk, criteria, options["dry_run"]))
        verb = "would be" if options["dry_run"] else "will be"
        if desk.is_json:
            desk.dump({"jobs": count, "dry_run": options["dry_run"]})
        else:
            desk.say(desk.style.SUCCESS(f"{counted(count, 'job')} {verb} tried again."))

    def change(self, job_ids: Sequence[int], desk: Console, options: Options) -> list[Job]:
        if options["dry_run"]:
            raise CommandError("--dry-run: expected --task, --error or --all, got ids.")
        return api.reschedule_jobs(job_ids, run_at=timedelta(0), attempts=0, **desk.place)

    def _criteria(self, desk: Console, options: Options) -> Criteria | None:
        """What was chosen; None, after a note, when there is no such name."""
        with desk.reading() as (cursor, schema, _):
            chosen = narrowed(cursor, desk, options, schema=schema)
            if chosen is None or options["error"] is None:
                return chosen
            names = {group.name for group in error_groups(cursor, schema=schema)}
        meant = tuple(name for name in names if name == options["error"] or name.endswith(f".{options['error']}"))
        if not meant:
            hint = did_you_mean(options["error"], {name.rpartition(".")[2] for name in names} | names)
            desk.warn(f"No job has failed with {options['error']!r}.{hint}")
            return None
        return Criteria(state=chosen.state, tasks=chosen.tasks, error_names=meant)

    def _retry_all(self, desk: Console, criteria: Criteria, is_rehearsal: bool) -> Iterator[int]:
        """Batch by batch, each in a transaction of its own. A job that fails again meanwhile is not met twice."""
        after: str | None = None
        while True:
            with desk.reading() as (cursor, schema, _):
                found = search.find(cursor, criteria, schema=schema, limit=BATCH, after=after)
            if is_rehearsal:
                yield len(found.ids)
            elif found.ids:
                yield len(api.reschedule_jobs(found.ids, run_at=timedelta(0), attempts=0, **desk.place))
            after = found.next_token
            if after is None:
                return
