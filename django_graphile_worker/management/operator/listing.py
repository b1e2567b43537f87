"""Looking at jobs: ``jobs`` and ``show``."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.color import Style

from django_graphile_worker import conf
from django_graphile_worker.logs import escaped
from django_graphile_worker.management.operator import tables, times, values
from django_graphile_worker.management.operator.desk import Desk
from django_graphile_worker.management.operator.tables import Cell, Column
from django_graphile_worker.management.operator.verb import Options, Verb, narrowing
from django_graphile_worker.payloads import decode_leniently
from django_graphile_worker.sql import inspection
from django_graphile_worker.sql.inspection import ListedJob, ShownJob

DEFAULT_LIMIT = 50


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
        states = (*inspection.STATES, "all")
        parser.add_argument("--state", choices=states, default="all", help="Which jobs (default: all).")
        parser.add_argument("--task", metavar="TASK", help="Only jobs of this task identifier.")
        parser.add_argument("--queue", metavar="QUEUE", help="Only jobs of this queue.")
        parser.add_argument(
            "--limit",
            type=values.positive,
            default=DEFAULT_LIMIT,
            metavar="N",
            help=f"The most jobs to list (default: {DEFAULT_LIMIT}).",
        )

    def run(self, desk: Desk, options: Options) -> None:
        limit = options["limit"]
        with desk.reading() as (cursor, schema, now):
            chosen = narrowing(cursor, desk, options, schema=schema)
            jobs = []
            if chosen is not None:
                # One more than shown tells whether there are more.
                jobs = inspection.list_jobs(cursor, options["state"], chosen, limit=limit + 1, schema=schema)
        if desk.is_json:
            desk.dump([job._asdict() for job in jobs[:limit]])
        elif jobs:
            desk.table(_COLUMNS, [_row(job, now, desk.style) for job in jobs[:limit]])
        else:
            desk.note("No jobs.")
        if len(jobs) > limit:
            desk.note(f"There are more; these are the first {limit}. --limit shows more.")


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


def _row(job: ListedJob, now: datetime, style: Style) -> list[Cell | str]:
    since = f"taken {times.relative(job.locked_at, now)}" if job.locked_at else times.both(job.run_at, now)
    return [
        str(job.id),
        state_cell(job.state, style),
        job.task_identifier,
        job.queue_name or "",
        str(job.priority),
        since,
        f"{job.attempts}/{job.max_attempts}",
        job.key or "",
        (job.last_error or "").strip().partition("\n")[0],
    ]


def state_cell(state: str, style: Style) -> Cell:
    paints = {
        "running": style.MIGRATE_LABEL,
        "ready": style.SUCCESS,
        "retrying": style.WARNING,
        "failed": style.ERROR,
    }
    return Cell(state, paints.get(state))


class Show(Verb):
    name = "show"
    summary = "Show everything about one job, and why it does not run."
    examples = ("42", "42 --json")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_id", type=values.job_id, metavar="ID", help="The job's id.")

    def run(self, desk: Desk, options: Options) -> None:
        timeout = conf.current().worker_timeout
        with desk.reading() as (cursor, schema, now):
            found = inspection.show_job(cursor, options["job_id"], timeout=timeout, schema=schema)
        if found is None:
            raise CommandError(
                f"Expected the id of a job, got {options['job_id']}, which is not there: "
                "completed and removed jobs are deleted."
            )
        reasons = _reasons(found, now)
        if desk.is_json:
            desk.dump(_as_dict(found, reasons))
        else:
            desk.say(_as_text(found, reasons, now, desk.style))


def _reasons(found: ShownJob, now: datetime) -> list[str]:
    """Why the job is not running; a ready one without a reason will be, in a moment."""
    job = found.job
    if job.state == "running":
        return []
    if job.state == "failed":
        return [f"all {job.max_attempts} attempts are used up; reschedule --attempts 0 --run-at now tries again"]
    reasons = []
    if job.state in {"scheduled", "retrying"}:
        reasons.append(f"it is due {times.relative(job.run_at, now)}")
    if found.queue_locked_by is not None:
        reasons.append(f"its queue {job.queue_name!r} is held by {found.queue_locked_by}")
    if not found.live_workers:
        reasons.append("no live worker of this package has the task (other workers do not tell)")
    return reasons


def _as_dict(found: ShownJob, reasons: list[str]) -> dict[str, Any]:
    return {
        **found.job._asdict(),
        "last_error": found.last_error,
        "payload": decode_leniently(found.payload_text),
        "revision": found.revision,
        "recoveries": found.recoveries,
        "live_workers": found.live_workers,
        "waits_because": reasons,
    }


def _as_text(found: ShownJob, reasons: list[str], now: datetime, style: Style) -> str:
    job = found.job
    held = f"{job.locked_by} since {times.both(job.locked_at, now)}" if job.locked_at else ""
    pairs: list[tuple[str, Cell | str]] = [
        ("job", str(job.id)),
        ("task", job.task_identifier),
        ("state", state_cell(job.state, style)),
        *(("waits because", reason) for reason in reasons),
        ("run at", times.both(job.run_at, now)),
        ("attempts", f"{job.attempts} of {job.max_attempts}"),
        ("priority", str(job.priority)),
        ("queue", job.queue_name or ""),
        ("key", job.key or ""),
        ("flags", ", ".join(sorted(job.flags))),
        ("held by", held),
        ("created", times.both(job.created_at, now)),
        ("updated", f"{times.both(job.updated_at, now)}, revision {found.revision}"),
        ("worker deaths", str(found.recoveries) if found.recoveries else ""),
    ]
    text = [tables.facts(pairs), "payload", _indented(_pretty(found.payload_text))]
    if found.last_error:
        text += ["last error", _indented(found.last_error)]
    return "\n".join(text)


def _pretty(payload_text: str) -> str:
    payload = decode_leniently(payload_text)
    # Text that Python cannot decode is shown as PostgreSQL holds it.
    if isinstance(payload, str) and not payload_text.startswith('"'):
        return payload_text
    return json.dumps(payload, indent=2, ensure_ascii=False)


def _indented(text: str) -> str:
    return "\n".join(f"  {escaped(line)}" for line in text.splitlines())
