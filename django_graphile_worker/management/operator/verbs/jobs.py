"""``jobs``, ``show`` and ``errors``: what is in the queue, and what went wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.color import Style

from django_graphile_worker.job_flags import schedule_in, without_run_flags
from django_graphile_worker.management.operator import arguments, formatting
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Cell, Column, job_row_as_dict, state_cell
from django_graphile_worker.management.operator.lookups import chosen_criteria, is_known
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.payloads import decode_leniently
from django_graphile_worker.registry import DEFAULT_LABEL, label_of, split_identifier
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.inspection.error_groups import MAX_COUNTED, MAX_GROUPS, ErrorGroup, error_groups
from django_graphile_worker.sql.inspection.job_detail import JobDetail, job_detail
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.criteria import STATES, State
from django_graphile_worker.sql.inspection.job_search.search import JobRow
from django_graphile_worker.text import escaped

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
        arguments.add_limit(parser, "jobs", default=DEFAULT_LIMIT)

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
    since = f"claimed {formatting.relative(job.locked_at, now)}" if job.locked_at else formatting.both(job.run_at, now)
    return [
        str(job.id),
        state_cell(job.state, style),
        _task(job),
        job.queue_name or "",
        str(job.priority),
        since,
        f"{job.attempts_made}/{job.max_attempts}",
        job.key or "",
        formatting.brief_error(job.error),
    ]


def _narrow_row(job: JobRow, now: datetime, style: Style) -> list[Cell | str]:
    verb = {State.RUNNING: "claimed", State.FAILED: "failed"}.get(job.state, "due")
    return [
        str(job.id),
        state_cell(job.state, style),
        _task(job),
        job.queue_name or "",
        f"{verb} {formatting.relative(job.moment, now)}",
        f"{job.attempts_made}/{job.max_attempts}",
        formatting.brief_error(job.error),
    ]


class Show(Verb):
    name = "show"
    summary = "Show everything about one job, and why it does not run."
    examples = ("42", "42 --json")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_id", type=arguments.job_id, metavar="ID", help="The id of the job.")

    def run(self, console: Console, options: Options) -> None:
        timeout = console.settings.worker_timeout
        with console.reading() as (cursor, schema, now):
            job = job_detail(cursor, options["job_id"], timeout=timeout, longest=None, schema=schema)
        if job is None:
            raise CommandError(f"There is no job {options['job_id']}: completed and removed jobs are deleted.")
        reasons = _reasons(job, now)
        if console.is_json:
            console.dump(_detail_as_dict(job, reasons))
        else:
            console.say(_as_text(job, reasons, now, console.style))


def _reasons(job: JobDetail, now: datetime) -> list[str]:
    """Return why the job does not run; a ready job without a reason runs in a moment."""
    if job.state is State.RUNNING:
        return []
    if job.state is State.FAILED:
        why = f"all {job.max_attempts} attempts are used up"
        if job.attempts_made < job.max_attempts:
            why = f"it was given up after attempt {job.attempts_made} of {job.max_attempts}"
        return [f"{why}; to try it again: retry {job.id}"]
    reasons = []
    if job.state is State.LIMITED:
        reasons.append(_limit(job, now))
    elif job.state is not State.READY:
        reasons.append(f"it is due {formatting.relative(job.run_at, now)}")
    if job.queue_locked_by is not None:
        reasons.append(f"its queue {job.queue_name!r} is held by {job.queue_locked_by}")
    if not job.live_workers:
        reasons.append("no live worker of this package has the task (other workers do not register theirs)")
    return reasons


def _limit(job: JobDetail, now: datetime) -> str:
    if job.limit_key is None:
        return "it has limits, and its turn comes when a worker has a free slot"
    since = formatting.relative(job.limited_since, now)
    return f"the key {job.limit_key!r} is at its limit, {job.limit_name!r}, since {since}"


def _detail_as_dict(job: JobDetail, reasons: list[str]) -> dict[str, Any]:
    return {
        **job_row_as_dict(job),
        "payload": decode_leniently(job.payload_text),
        "revision": job.revision,
        "recoveries": job.recoveries or 0,
        "live_workers": job.live_workers,
        "waits_because": reasons,
    }


def _as_text(job: JobDetail, reasons: list[str], now: datetime, style: Style) -> str:
    held = f"{job.locked_by} since {formatting.both(job.locked_at, now)}" if job.locked_at else ""
    pairs: list[tuple[str, Cell | str]] = [
        ("job", str(job.id)),
        ("task", split_identifier(job.task_identifier or "")[0]),
        ("label", _label_of_job(job)),
        ("state", state_cell(job.state, style)),
        *(("waits because", reason) for reason in reasons),
        ("run at", formatting.both(job.run_at, now)),
        ("attempts", f"{job.attempts_made} of {job.max_attempts}"),
        ("priority", str(job.priority)),
        ("queue", job.queue_name or ""),
        ("key", job.key or ""),
        *_schedule(job),
        ("flags", ", ".join(sorted(without_run_flags(flags_from(job.flags_text))))),
        ("held by", held),
        ("created", formatting.both(job.created_at, now)),
        ("updated", f"{formatting.both(job.updated_at, now)}, revision {job.revision}"),
        ("worker deaths", str(job.recoveries) if job.recoveries else ""),
    ]
    text = [formatting.facts(pairs), "payload", _indented(_pretty(job.payload_text))]
    if job.last_error:
        text += ["last error", _indented(job.last_error)]
    return "\n".join(text)


def _schedule(job: JobDetail) -> list[tuple[str, Cell | str]]:
    """Return the number of the schedule, if the job is a run of one."""
    schedule_id = schedule_in(flags_from(job.flags_text))
    return [] if schedule_id is None else [("schedule", f"#{schedule_id}")]


def _label_of_job(job: JobDetail) -> str:
    """Return the label of a Django task; the label that all tasks have by default is not shown."""
    label = label_of(job.task_identifier or "")
    return "" if label == DEFAULT_LABEL else label


def _pretty(payload_text: str) -> str:
    payload = decode_leniently(payload_text)
    # Text that Python cannot decode is shown as PostgreSQL stores it.
    if isinstance(payload, str) and not payload_text.startswith('"'):
        return payload_text
    return json.dumps(payload, indent=2, ensure_ascii=False)


def _indented(text: str) -> str:
    return "\n".join(f"  {escaped(line)}" for line in text.splitlines())


class Errors(Verb):
    name = "errors"
    summary = "List the errors of failed jobs, by task and class of error."
    description = (
        "Group the jobs that have failed, permanently or until the next attempt, by their task and by the class of "
        f"their error, the largest group first. List up to {MAX_GROUPS} groups, and count up to {MAX_COUNTED:,} jobs."
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
            console.dump([_error_as_dict(group) for group in chosen])
        elif chosen:
            console.table(_ERROR_COLUMNS, [_error_row(group, now, console.style) for group in chosen])
            console.note("To try failed jobs again: retry --task TASK --error ERROR")
        else:
            console.note("No job has failed.")


_ERROR_COLUMNS = (
    Column("TASK", gives_way=True),
    Column("ERROR", gives_way=True),
    Column("FAILED", is_number=True),
    Column("RETRYING", is_number=True),
    Column("LAST SEEN"),
    Column("JOB", is_number=True),
    Column("MESSAGE", gives_way=True),
)


def _error_row(group: ErrorGroup, now: datetime, style: Style) -> list[Cell | str]:
    more = "+" if group.is_more else ""
    return [
        group.task_identifier,
        formatting.brief_error(group.name),
        Cell(f"{group.failed}{more}", style.ERROR) if group.failed else "",
        Cell(f"{group.retrying}{more}", style.WARNING) if group.retrying else "",
        "" if group.last_seen is None else formatting.relative(group.last_seen, now),
        str(group.latest_id),
        formatting.brief_error(group.latest_error).partition(": ")[2],
    ]


def _error_as_dict(group: ErrorGroup) -> dict[str, Any]:
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
