"""``jobs``: list jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser
from django.core.management.color import Style

from django_graphile_worker.management.operator import arguments, tables, times
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import job_row_as_dict, state_cell
from django_graphile_worker.management.operator.known_names import chosen_criteria
from django_graphile_worker.management.operator.tables import Cell, Column
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.registry import DEFAULT_LABEL, label_of, split_identifier
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.criteria import STATES, State
from django_graphile_worker.sql.inspection.job_search.search import JobRow

DEFAULT_LIMIT = 50
# On a terminal with at least this many columns, a time is shown as a date and relative to now.
WIDE = 120
NO_JOBS = search.Listed(rows=[], has_more=False, is_cut_off=False)


class Jobs(Verb):
    name = "jobs"
    summary = "List jobs."
    description = (
        "List jobs by state: running; ready (due now, in the order in which workers claim them); scheduled (due "
        "later); retrying (failed, and due again later); failed (permanently); or all, the newest first, and with "
        "--task or --queue one state after the other. Only the listed rows are read, even from a table of millions."
    )
    examples = ("", "--state failed --task send_receipt", "--state ready --queue warehouse --limit 10 --json")

    def add_arguments(self, parser: CommandParser) -> None:
        states = [state.value for state in (*STATES, State.ANY)]
        parser.add_argument("--state", choices=states, default="all", help="List jobs in this state (default: all).")
        parser.add_argument("--task", metavar="TASK", help="List only jobs of this task identifier.")
        parser.add_argument("--label", metavar="LABEL", help="List only jobs of Django tasks with this label.")
        parser.add_argument("--queue", metavar="QUEUE", help="List only jobs of this queue.")
        parser.add_argument(
            "--limit",
            type=arguments.positive,
            default=DEFAULT_LIMIT,
            metavar="N",
            help=f"List at most N jobs (default: {DEFAULT_LIMIT}).",
        )

    def run(self, console: Console, options: Options) -> None:
        limit = options["limit"]
        with console.reading() as (cursor, schema, now):
            chosen = chosen_criteria(cursor, console, options, schema=schema)
            listed = NO_JOBS if chosen is None else search.list_jobs(cursor, chosen, limit=limit, schema=schema)
        if console.is_json:
            console.dump([job_row_as_dict(job) for job in listed.rows])
        elif listed.rows:
            is_narrow = console.width is not None and console.width < WIDE
            columns: Sequence[Column]
            columns, row = (_NARROW_COLUMNS, _narrow_row) if is_narrow else (_COLUMNS, _row)
            rows = [row(job, now, console.style) for job in listed.rows]
            if any(map(_label, listed.rows)):
                columns = _with_label(columns, Column("LABEL", gives_way=True))
                rows = [_with_label(cells, _label(job)) for job, cells in zip(listed.rows, rows, strict=True)]
            console.table(columns, rows)
        else:
            console.note("No jobs.")
        if listed.has_more:
            console.note(f"There are more jobs; these are the first {limit}. Use --limit to list more.")
        elif listed.is_cut_off:
            console.note(
                "The search stopped after very many other jobs, and there may be more matches. Use --state or --task."
            )


_COLUMNS = (
    Column("ID", is_number=True),
    Column("STATE"),
    Column("TASK", gives_way=True),
    Column("QUEUE", gives_way=True),
    Column("PRIORITY", is_number=True),
    Column("RUN AT", gives_way=True),
    Column("ATTEMPTS", is_number=True),
    Column("KEY", gives_way=True),
    Column("ERROR", gives_way=True),
)


# A narrow terminal has room for the most important columns; `show` shows the rest.
_NARROW_COLUMNS = (
    Column("ID", is_number=True),
    Column("STATE"),
    Column("TASK", gives_way=True),
    Column("QUEUE", gives_way=True),
    Column("WHEN"),
    Column("TRIED", is_number=True),
    Column("ERROR", gives_way=True),
)


def _with_label(cells: Sequence[Any], label: Any) -> list[Any]:
    """Return the cells with another after the task: only Django tasks have labels."""
    return [*cells[:_AFTER_TASK], label, *cells[_AFTER_TASK:]]


_AFTER_TASK = 3


def _task(job: JobRow) -> str:
    return split_identifier(job.task_identifier or "")[0]


def _label(job: JobRow) -> str:
    label = label_of(job.task_identifier or "")
    return "" if label == DEFAULT_LABEL else label


def _row(job: JobRow, now: datetime, style: Style) -> list[Cell | str]:
    since = f"claimed {times.relative(job.locked_at, now)}" if job.locked_at else times.both(job.run_at, now)
    return [
        str(job.id),
        state_cell(job.state, style),
        _task(job),
        job.queue_name or "",
        str(job.priority),
        since,
        f"{job.attempts_made}/{job.max_attempts}",
        job.key or "",
        tables.brief_error(job.error),
    ]


def _narrow_row(job: JobRow, now: datetime, style: Style) -> list[Cell | str]:
    verb = {State.RUNNING: "claimed", State.FAILED: "failed"}.get(job.state, "due")
    return [
        str(job.id),
        state_cell(job.state, style),
        _task(job),
        job.queue_name or "",
        f"{verb} {times.relative(job.moment, now)}",
        f"{job.attempts_made}/{job.max_attempts}",
        tables.brief_error(job.error),
    ]
