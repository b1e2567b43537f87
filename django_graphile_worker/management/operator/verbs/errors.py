"""``errors``: list the errors of failed jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser
from django.core.management.color import Style

from django_graphile_worker.management.operator import tables, times
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.known_names import is_known
from django_graphile_worker.management.operator.tables import Cell, Column
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql.inspection.error_groups import MOST_COUNTED, MOST_GROUPS, ErrorGroup, error_groups


class Errors(Verb):
    name = "errors"
    summary = "List the errors of failed jobs, by task and class of error."
    description = (
        "Group the jobs that have failed, permanently or until the next attempt, by their task and by the class of "
        f"their error, the largest group first. List up to {MOST_GROUPS} groups, and count up to {MOST_COUNTED:,} jobs."
    )
    examples = ("", "--task send_receipt", "--json")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--task", metavar="TASK", help="List only jobs of this task identifier.")

    def run(self, console: Console, options: Options) -> None:
        with console.reading() as (cursor, schema, now):
            groups = error_groups(cursor, schema=schema)
            if options["task"] is not None:
                is_known(cursor, console, "task", options["task"], schema=schema)
        chosen = [group for group in groups if options["task"] in (None, group.task_identifier)]
        if console.is_json:
            console.dump([_as_dict(group) for group in chosen])
        elif chosen:
            console.table(_COLUMNS, [_row(group, now, console.style) for group in chosen])
            console.note("To try failed jobs again: retry --task TASK --error ERROR")
        else:
            console.note("No job has failed.")


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
