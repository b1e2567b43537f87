"""``show``: show one job."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.color import Style

from django_graphile_worker.job_flags import schedule_in, without_run_flags
from django_graphile_worker.management.operator import arguments, tables, times
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import job_row_as_dict, state_cell
from django_graphile_worker.management.operator.tables import Cell
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.payloads import decode_leniently
from django_graphile_worker.registry import DEFAULT_LABEL, label_of, split_identifier
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.inspection.job_detail import JobDetail, job_detail
from django_graphile_worker.sql.inspection.job_search.criteria import State
from django_graphile_worker.text import escaped


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
            raise CommandError(
                f"Expected the id of a job, got {options['job_id']}, which does not exist: "
                "completed and removed jobs are deleted."
            )
        reasons = _reasons(job, now)
        if console.is_json:
            console.dump(_as_dict(job, reasons))
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
        reasons.append(f"it is due {times.relative(job.run_at, now)}")
    if job.queue_locked_by is not None:
        reasons.append(f"its queue {job.queue_name!r} is held by {job.queue_locked_by}")
    if not job.live_workers:
        reasons.append("no live worker of this package has the task (other workers do not register theirs)")
    return reasons


def _limit(job: JobDetail, now: datetime) -> str:
    if job.limit_key is None:
        return "it has limits, and its turn comes when a worker has a free slot"
    since = times.relative(job.limited_since, now)
    return f"the key {job.limit_key!r} is at its limit, {job.limit_name!r}, since {since}"


def _as_dict(job: JobDetail, reasons: list[str]) -> dict[str, Any]:
    return {
        **job_row_as_dict(job),
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
        ("task", split_identifier(job.task_identifier or "")[0]),
        ("label", _label(job)),
        ("state", state_cell(job.state, style)),
        *(("waits because", reason) for reason in reasons),
        ("run at", times.both(job.run_at, now)),
        ("attempts", f"{job.attempts_made} of {job.max_attempts}"),
        ("priority", str(job.priority)),
        ("queue", job.queue_name or ""),
        ("key", job.key or ""),
        *_schedule(job),
        ("flags", ", ".join(sorted(without_run_flags(flags_from(job.flags_text))))),
        ("held by", held),
        ("created", times.both(job.created_at, now)),
        ("updated", f"{times.both(job.updated_at, now)}, revision {job.revision}"),
        ("worker deaths", str(job.recoveries) if job.recoveries else ""),
    ]
    text = [tables.facts(pairs), "payload", _indented(_pretty(job.payload_text))]
    if job.last_error:
        text += ["last error", _indented(job.last_error)]
    return "\n".join(text)


def _schedule(job: JobDetail) -> list[tuple[str, Cell | str]]:
    """Return the number of the schedule, if the job is a run of one."""
    schedule_id = schedule_in(flags_from(job.flags_text))
    return [] if schedule_id is None else [("schedule", f"#{schedule_id}")]


def _label(job: JobDetail) -> str:
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
