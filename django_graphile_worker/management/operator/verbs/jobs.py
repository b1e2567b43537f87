"""Looking at jobs: ``jobs`` and ``show``."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.color import Style

from django_graphile_worker.escaping import escaped
from django_graphile_worker.management.operator import arguments, tables, times
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.tables import Cell, Column
from django_graphile_worker.management.operator.verb import Options, Verb, narrowed
from django_graphile_worker.payloads import decode_leniently
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.inspection import search
from django_graphile_worker.sql.inspection.criteria import STATES, State
from django_graphile_worker.sql.inspection.job_detail import JobDetail, job_detail
from django_graphile_worker.sql.inspection.search import JobRow

DEFAULT_LIMIT = 50
# Where times fit in twice: as a date, and from now.
WIDE = 120
NO_JOBS = search.Listed(rows=[], has_more=False, is_cut_off=False)


class Jobs(Verb):
    name = "jobs"
    summary = "List jobs."
    description = (
        "Lists jobs by state: running; ready (due now, in the order in which they will be taken); scheduled (due "
        "later); retrying (failed, and due again later); failed (permanently); or all, the newest first, and with "
        "--task or --queue one state after the other. Reads only what it shows, also from a table of millions."
    )
    examples = ("", "--state failed --task send_receipt", "--state ready --queue warehouse --limit 10 --json")

    def add_arguments(self, parser: CommandParser) -> None:
        states = [state.value for state in (*STATES, State.ANY)]
        parser.add_argument("--state", choices=states, default="all", help="Which jobs (default: all).")
        parser.add_argument("--task", metavar="TASK", help="Only jobs of this task identifier.")
        parser.add_argument("--queue", metavar="QUEUE", help="Only jobs of this queue.")
        parser.add_argument(
            "--limit",
            type=arguments.positive,
            default=DEFAULT_LIMIT,
            metavar="N",
            help=f"The most jobs to list (default: {DEFAULT_LIMIT}).",
        )

    def run(self, desk: Console, options: Options) -> None:
        limit = options["limit"]
        with desk.reading() as (cursor, schema, now):
            chosen = narrowed(cursor, desk, options, schema=schema)
            listed = NO_JOBS if chosen is None else search.list_jobs(cursor, chosen, limit=limit, schema=schema)
        if desk.is_json:
            desk.dump([_line_as_dict(job) for job in listed.rows])
        elif listed.rows:
            is_narrow = desk.width is not None and desk.width < WIDE
            columns, row = (_NARROW_COLUMNS, _narrow_row) if is_narrow else (_COLUMNS, _row)
            desk.table(columns, [row(job, now, desk.style) for job in listed.rows])
        else:
            desk.note("No jobs.")
        if listed.has_more:
            desk.note(f"There are more; these are the first {limit}. --limit shows more.")
        elif listed.is_cut_off:
            desk.note("Gave up looking among very many others: there may be more. --state and --task help.")


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


# A narrow terminal has room for what matters most; show has the rest.
_NARROW_COLUMNS = (
    Column("ID", is_number=True),
    Column("STATE"),
    Column("TASK", gives_way=True),
    Column("QUEUE", gives_way=True),
    Column("WHEN"),
    Column("TRIED", is_number=True),
    Column("ERROR", gives_way=True),
)


def _line_as_dict(job: JobRow | JobDetail) -> dict[str, Any]:
    """Everything but the payload, which may be large."""
    return {
        "id": job.id,
        "state": job.state.value,
        "task_identifier": job.task_identifier or "",
        "queue_name": job.queue_name,
        "priority": job.priority,
        "run_at": job.run_at,
        "attempts": job.attempts,
        "attempts_made": job.attempts_made,
        "max_attempts": job.max_attempts,
        "key": job.key,
        "flags": flags_from(job.flags_text),
        "locked_at": job.locked_at,
        "locked_by": job.locked_by,
        "last_error": job.error if isinstance(job, JobRow) else job.last_error,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
    }


def _row(job: JobRow, now: datetime, style: Style) -> list[Cell | str]:
    since = f"taken {times.relative(job.locked_at, now)}" if job.locked_at else times.both(job.run_at, now)
    return [
        str(job.id),
        state_cell(job.state, style),
        job.task_identifier or "",
        job.queue_name or "",
        str(job.priority),
        since,
        f"{job.attempts_made}/{job.max_attempts}",
        job.key or "",
        tables.brief_error(job.error),
    ]


def _narrow_row(job: JobRow, now: datetime, style: Style) -> list[Cell | str]:
    verb = {State.RUNNING: "taken", State.FAILED: "failed"}.get(job.state, "due")
    return [
        str(job.id),
        state_cell(job.state, style),
        job.task_identifier or "",
        job.queue_name or "",
        f"{verb} {times.relative(job.moment, now)}",
        f"{job.attempts_made}/{job.max_attempts}",
        tables.brief_error(job.error),
    ]


def state_cell(state: State, style: Style) -> Cell:
    paints = {
        State.RUNNING: style.MIGRATE_LABEL,
        State.READY: style.SUCCESS,
        State.RETRYING: style.WARNING,
        State.FAILED: style.ERROR,
    }
    return Cell(state.value, paints.get(state))


class Show(Verb):
    name = "show"
    summary = "Show everything about one job, and why it does not run."
    examples = ("42", "42 --json")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_id", type=arguments.job_id, metavar="ID", help="The job's id.")

    def run(self, desk: Console, options: Options) -> None:
        timeout = desk.settings.worker_timeout
        with desk.reading() as (cursor, schema, now):
            job = job_detail(cursor, options["job_id"], timeout=timeout, longest=None, schema=schema)
        if job is None:
            raise CommandError(
                f"Expected the id of a job, got {options['job_id']}, which is not there: "
                "completed and removed jobs are deleted."
            )
        reasons = _reasons(job, now)
        if desk.is_json:
            desk.dump(_as_dict(job, reasons))
        else:
            desk.say(_as_text(job, reasons, now, desk.style))


def _reasons(job: JobDetail, now: datetime) -> list[str]:
    """Why the job is not running; a ready one without a reason will be, in a moment."""
    if job.state is State.RUNNING:
        return []
    if job.state is State.FAILED:
        why = f"all {job.max_attempts} attempts are used up"
        if job.attempts_made < job.max_attempts:
            why = f"it was given up after attempt {job.attempts_made} of {job.max_attempts}"
        return [f"{why}; retry {job.id} tries it again"]
    reasons = []
    if job.state is not State.READY:
        reasons.append(f"it is due {times.relative(job.run_at, now)}")
    if job.queue_locked_by is not None:
        reasons.append(f"its queue {job.queue_name!r} is held by {job.queue_locked_by}")
    if not job.live_workers:
        reasons.append("no live worker of this package has the task (other workers do not tell)")
    return reasons


def _as_dict(job: JobDetail, reasons: list[str]) -> dict[str, Any]:
    return {
        **_line_as_dict(job),
        "payload": decode_leniently(job.payload_text),
        "revision": job.revision,
        "recoveries": job.recoveries or 0,
        "live_workers": job.live_workers,
        "waits_because": reasons,
    }


def _as_text(job: JobDetail, reasons: list[str], now: datetime, style: Style) -> str:
    held = f"{job.locked_by} since {times.both(job.locked_at, now)}" if job.locked_at else ""
    pairs: list[tuple[str, Cell | str]] = [
        ("job", str(job.id)),
        ("task", job.task_identifier or ""),
        ("state", state_cell(job.state, style)),
        *(("waits because", reason) for reason in reasons),
        ("run at", times.both(job.run_at, now)),
        ("attempts", f"{job.attempts_made} of {job.max_attempts}"),
        ("priority", str(job.priority)),
        ("queue", job.queue_name or ""),
        ("key", job.key or ""),
        ("flags", ", ".join(sorted(flags_from(job.flags_text)))),
        ("held by", held),
        ("created", times.both(job.created_at, now)),
        ("updated", f"{times.both(job.updated_at, now)}, revision {job.revision}"),
        ("worker deaths", str(job.recoveries) if job.recoveries else ""),
    ]
    text = [tables.facts(pairs), "payload", _indented(_pretty(job.payload_text))]
    if job.last_error:
        text += ["last error", _indented(job.last_error)]
    return "\n".join(text)


def _pretty(payload_text: str) -> str:
    payload = decode_leniently(payload_text)
    # Text that Python cannot decode is shown as PostgreSQL holds it.
    if isinstance(payload, str) and not payload_text.startswith('"'):
        return payload_text
    return json.dumps(payload, indent=2, ensure_ascii=False)


def _indented(text: str) -> str:
    return "\n".join(f"  {escaped(line)}" for line in text.splitlines())
