"""``jobs``, ``show``, ``result``, ``history`` and ``errors``: jobs, what became of them, and what went wrong."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.color import Style

from django_graphile_worker.exceptions import ResultTimeoutError, UnknownResultError
from django_graphile_worker.job_flags import schedule_in, without_run_flags
from django_graphile_worker.management.operator import formatting, verb
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import (
    Cell,
    Row,
    Value,
    indented,
    job_row_as_dict,
    state_cell,
)
from django_graphile_worker.management.operator.verb import Options, Verb, did_you_mean
from django_graphile_worker.payloads import decode_leniently
from django_graphile_worker.registry import DEFAULT_LABEL, label_of, split_identifier
from django_graphile_worker.results import Result, ResultStatus, result, wait_for_result
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.inspection import job_list, known_names, past_attempts
from django_graphile_worker.sql.inspection.error_groups import MAX_COUNTED, MAX_GROUPS, ErrorGroup, error_groups
from django_graphile_worker.sql.inspection.job_detail import JobDetail, job_detail
from django_graphile_worker.sql.inspection.job_list import STATES, Criteria, JobRow, State
from django_graphile_worker.sql.inspection.past_attempts import HistoryCriteria, HistoryRow
from django_graphile_worker.sql.progress import Progress
from django_graphile_worker.sql.results import HistoryOutcome
from django_graphile_worker.sql.statements import Cursor
from django_graphile_worker.text import readable_duration

NO_JOBS = job_list.Listed(rows=[], has_more=False)


def chosen_criteria(cursor: Cursor, console: Console, options: Options, *, schema: str) -> Criteria | None:
    """Return the criteria of the chosen state, task, label and queue; None, after a warning, for an unknown name."""
    task, queue = options.get("task"), options.get("queue")
    for kind, name in (("task", task), ("queue", queue)):
        if name is not None and not is_known(cursor, console, kind, name, schema=schema):
            return None
    tasks: tuple[str, ...] = () if task is None else (task,)
    if label := options.get("label"):
        chosen = tasks or known_names.known_tasks(cursor, schema=schema)
        tasks = tuple(name for name in chosen if label_of(name) == label)
        if not tasks:
            console.warn(f"No task has the label {label!r}.")
            return None
    return Criteria(state=State(options["state"]), tasks=tasks, queues=() if queue is None else (queue,))


def is_known(cursor: Cursor, console: Console, kind: str, name: str, *, schema: str) -> bool:
    """Return whether the database has a task or a queue of this name; False after a warning."""
    is_task, is_queue = known_names.meaning(cursor, name, schema=schema)
    if is_task if kind == "task" else is_queue:
        return True
    known = known_names.known_tasks if kind == "task" else known_names.some_queues
    console.warn(f"No job has the {kind} {name!r}.{did_you_mean(name, known(cursor, schema=schema))}")
    return False


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
        verb.add_limit(parser, "jobs")

    def run(self, console: Console, options: Options) -> None:
        limit = options["limit"]
        with console.reading() as (cursor, schema, now):
            chosen = chosen_criteria(cursor, console, options, schema=schema)
            found = NO_JOBS if chosen is None else job_list.list_jobs(cursor, chosen, limit=limit, schema=schema)
        has_labels = any(_label(job) for job in found.rows)
        console.listing(
            found.rows,
            job_row_as_dict,
            lambda job: _job_row(job, now, console.style, has_labels=has_labels),
            nothing="No jobs.",
        )
        if found.has_more:
            console.note(f"There are more jobs; these are the first {limit}. Use --limit to list more.")


def _label(job: JobRow | JobDetail) -> str:
    """Return the label of a Django task; the label that all tasks have by default is not shown."""
    label = label_of(job.task_identifier or "")
    return "" if label == DEFAULT_LABEL else label


def _job_row(job: JobRow, now: datetime, style: Style, *, has_labels: bool) -> Row:
    what = {State.RUNNING: "claimed", State.FAILED: "failed"}.get(job.state, "due")
    return {
        "ID": job.id,
        "STATE": state_cell(job.state, style),
        "TASK": split_identifier(job.task_identifier or "")[0],
        **({"LABEL": _label(job)} if has_labels else {}),
        "QUEUE": job.queue_name,
        "WHEN": f"{what} {formatting.brief(job.moment, now)}",
        "TRIED": f"{job.attempts_made}/{job.max_attempts}",
        "ERROR": formatting.brief_error(job.error),
        "KEY": job.key,
        "PRIORITY": job.priority,
    }


class Show(Verb):
    name = "show"
    summary = "Show everything about one job, and why it does not run."
    examples = ("42", "42 --json")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_id", type=verb.job_id, metavar="ID", help="The id of the job.")

    def run(self, console: Console, options: Options) -> None:
        timeout = console.settings.worker_timeout
        with console.reading() as (cursor, schema, now):
            job = job_detail(cursor, options["job_id"], timeout=timeout, longest=None, schema=schema)
        if job is None:
            raise CommandError(f"There is no job {options['job_id']}: completed and deleted jobs leave no row.")
        reasons = _reasons(job, now)
        if console.is_json:
            more = {name: getattr(job, name) for name in ("revision", "live_workers")}
            payload = decode_leniently(job.payload_text)
            recoveries = job.recoveries or 0
            about = {"payload": payload, "recoveries": recoveries, "waits_because": reasons}
            console.dump({**job_row_as_dict(job), **more, **about})
        else:
            console.say(_job_as_text(job, reasons, now, console.style))


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
    if job.state is State.LIMITED and job.limit_key is None:
        reasons.append("it has limits, and its turn comes when a worker has a free slot")
    elif job.state is State.LIMITED:
        since = formatting.relative(job.limited_since, now)
        reasons.append(f"the key {job.limit_key!r} is at its limit, {job.limit_name!r}, since {since}")
    elif job.state is not State.READY:
        reasons.append(f"it is due {formatting.relative(job.run_at, now)}")
    if job.queue_locked_by is not None:
        reasons.append(f"its queue {job.queue_name!r} is held by {job.queue_locked_by}")
    if not job.live_workers:
        reasons.append("no live worker of this package has the task (other workers do not register theirs)")
    return reasons


def _job_as_text(job: JobDetail, reasons: list[str], now: datetime, style: Style) -> str:
    flags = flags_from(job.flags_text)
    schedule_id = schedule_in(flags)
    pairs: list[tuple[str, Value]] = [
        ("job", job.id),
        ("task", split_identifier(job.task_identifier or "")[0]),
        ("label", _label(job)),
        ("state", state_cell(job.state, style)),
        *(("waits because", reason) for reason in reasons),
        ("run at", formatting.both(job.run_at, now)),
        ("attempts", f"{job.attempts_made} of {job.max_attempts}"),
        ("priority", job.priority),
        ("queue", job.queue_name),
        ("key", job.key),
        *([] if schedule_id is None else [("schedule", f"#{schedule_id}")]),
        ("flags", ", ".join(sorted(without_run_flags(flags)))),
        ("held by", f"{job.locked_by} since {formatting.both(job.locked_at, now)}" if job.locked_at else ""),
        ("created", formatting.both(job.created_at, now)),
        ("updated", f"{formatting.both(job.updated_at, now)}, revision {job.revision}"),
        ("worker deaths", job.recoveries or None),
    ]
    text = [formatting.facts(pairs), "payload", indented(_pretty(job.payload_text))]
    if job.last_error:
        text += ["last error", indented(job.last_error)]
    return "\n".join(text)


def _pretty(payload_text: str) -> str:
    payload = decode_leniently(payload_text)
    # Text that Python cannot decode is shown as PostgreSQL stores it.
    if isinstance(payload, str) and not payload_text.startswith('"'):
        return payload_text
    return json.dumps(payload, indent=2, ensure_ascii=False)


class ShowResult(Verb):
    name = "result"
    summary = "Show what became of a job: its status, its progress, and what its task returned."
    description = (
        "The result of a job that has succeeded is kept for as long as @task(keep_result=...) or the setting "
        "KEEP_RESULTS says. With --wait, wait until the job has ended. The exit code is 1 if the job has failed."
    )
    examples = ("42", "42 --wait 30", "42 --json")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_id", type=verb.job_id, metavar="ID", help="The id of the job.")
        parser.add_argument(
            "--wait",
            type=verb.seconds,
            metavar="SECONDS",
            help="Wait up to this many seconds until the job has ended.",
        )

    def run(self, console: Console, options: Options) -> None:
        found = _read_result(console, options)
        if found is None:
            raise CommandError(
                f"There is no job {options['job_id']}, and no result of it: completed jobs are deleted, and their "
                "results are kept only if @task(keep_result=...) or the setting KEEP_RESULTS says so."
            )
        if console.is_json:
            # The value is a property that raises if there is none.
            fields = {each.name: getattr(found, each.name) for each in dataclasses.fields(found) if each.name[0] != "_"}
            own = {
                "status": found.status.value,
                "attempts": [dataclasses.asdict(attempt) for attempt in found.attempts],
                "progress": None if found.progress is None else dataclasses.asdict(found.progress),
                "value": found.value if found.status is ResultStatus.SUCCEEDED else None,
            }
            console.dump(fields | own)
        else:
            console.say(_result_as_text(found, console.now()))
        if found.status is ResultStatus.FAILED:
            raise CommandError(f"Job {found.job_id} has failed.")


def _read_result(console: Console, options: Options) -> Result | None:
    if options["wait"] is not None:
        try:
            return wait_for_result(options["job_id"], timeout=options["wait"], **console.place)
        except UnknownResultError:
            return None
        except ResultTimeoutError as error:
            console.warn(str(error))
    return result(options["job_id"], **console.place)


def _result_as_text(found: Result, now: datetime) -> str:
    pairs: list[tuple[str, Value]] = [
        ("job", found.job_id),
        ("task", found.task_identifier),
        ("status", found.status.value),
        ("progress", _progress(found.progress)),
        ("queue", found.queue_name),
        ("worker", found.worker_id),
        ("added", formatting.both(found.added_at, now)),
        ("started", formatting.both(found.last_started_at, now)),
        ("finished", formatting.both(found.finished_at, now)),
        ("attempts", len(found.attempts) or None),
        ("cancelled by", found.cancelled_by),
        ("reason", found.cancel_reason),
    ]
    text = [formatting.facts([(name, value) for name, value in pairs if value not in (None, "", formatting.EMPTY)])]
    if found.status is ResultStatus.SUCCEEDED:
        text += ["value", indented(json.dumps(found.value, indent=2, ensure_ascii=False))]
    if found.last_error:
        text += ["last error", indented(found.last_error)]
    return "\n".join(text)


def _progress(progress: Progress | None) -> str:
    if progress is None:
        return ""
    amount = f"{progress.done:g}" if progress.total is None else f"{progress.done:g} of {progress.total:g}"
    percent = "" if progress.percent is None else f" ({progress.percent} %)"
    return f"{amount}{percent} {progress.message}".rstrip()


PAYLOAD = "payload:"


class History(Verb):
    name = "history"
    summary = "List attempts that have ended, the latest first."
    description = (
        "Attempts of jobs that are deleted are listed, too. The history is kept for as long as the setting HISTORY "
        "says. Each WORD is a job id, a job key, a task, a queue, or a word of a payload, if HISTORY_PAYLOADS keeps "
        "payloads; payload:WORD is only a word of a payload."
    )
    examples = ("", "4711", "--task send_receipt --outcome permanently_failed", "order-4711 --since 7d --json")

    def add_arguments(self, parser: CommandParser) -> None:
        outcomes = [each.name.lower() for each in HistoryOutcome]
        parser.add_argument("words", nargs="*", metavar="WORD", help="What to look for; all words must match.")
        parser.add_argument("--task", metavar="TASK", help="List only attempts of this task identifier.")
        parser.add_argument("--queue", metavar="QUEUE", help="List only attempts of jobs of this queue.")
        parser.add_argument("--key", metavar="KEY", help="List only attempts of jobs with this job key.")
        parser.add_argument("--outcome", choices=outcomes, help="List only attempts that ended so.")
        parser.add_argument("--since", type=verb.period, metavar="PERIOD", help="List only this period, like 7d.")
        verb.add_limit(parser, "attempts")

    def run(self, console: Console, options: Options) -> None:
        if console.settings.history is None:
            console.warn(
                'No history is kept: set GRAPHILE_WORKER["HISTORY"], for example to timedelta(days=30), and restart '
                "the workers."
            )
        with console.reading() as (cursor, schema, now):
            criteria = _history_criteria(options, now)
            page = past_attempts.find_attempts(cursor, criteria, schema=schema, limit=options["limit"])
        console.listing(page.rows, _attempt_as_dict, lambda row: _attempt_row(row, now), nothing="No attempts.")
        if options["words"] and not page.rows and not console.settings.history_payloads:
            console.note(
                'Words of payloads are found only if GRAPHILE_WORKER["HISTORY_PAYLOADS"] was True when the attempts '
                "ended, and it is False."
            )
        if page.is_cut_off:
            console.note("The search stopped after many other attempts. Use --task, --queue or --since.")
        elif page.next_token:
            console.note(f"There are more attempts; these are the last {options['limit']}. Use --limit to list more.")


def _history_criteria(options: Options, now: datetime) -> HistoryCriteria:
    outcome, since, words = options["outcome"], options["since"], options["words"]
    return HistoryCriteria(
        anywhere=tuple(word for word in words if not word.startswith(PAYLOAD)),
        payload=tuple(word.removeprefix(PAYLOAD) for word in words if word.startswith(PAYLOAD)),
        tasks=(options["task"],) if options["task"] else (),
        queues=(options["queue"],) if options["queue"] else (),
        keys=(options["key"],) if options["key"] else (),
        outcomes=(int(HistoryOutcome[outcome.upper()]),) if outcome else (),
        ended_at=(formatting.aware(now) - since if since else None, None),
    )


def _attempt_row(row: HistoryRow, now: datetime) -> Row:
    return {
        "JOB": row.job_id,
        "TASK": row.task_identifier,
        "OUTCOME": HistoryOutcome(row.outcome).name.lower(),
        "ATTEMPT": row.attempt,
        "TOOK": "" if row.seconds is None else readable_duration(row.seconds),
        "ENDED": formatting.both(row.ended_at, now),
        "QUEUE": row.queue_name,
        "KEY": row.job_key,
        "WORKER": row.worker_id,
        "ERROR": formatting.brief_error(row.error),
    }


def _attempt_as_dict(row: HistoryRow) -> dict[str, Any]:
    about = row._asdict() | {"outcome": HistoryOutcome(row.outcome).name.lower(), "seconds": row.seconds}
    return {name: value for name, value in about.items() if name not in ("token", "payload_text")}


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
        console.listing(
            chosen,
            _group_as_dict,
            lambda group: _group_row(group, now, console.style),
            nothing="No job has failed.",
        )
        if chosen and not console.is_json:
            console.note("To try failed jobs again: retry --task TASK --error ERROR")


def _group_row(group: ErrorGroup, now: datetime, style: Style) -> Row:
    more = "+" if group.is_more else ""
    return {
        "TASK": group.task_identifier,
        "ERROR": formatting.brief_error(group.name),
        "FAILED": Cell(f"{group.failed}{more}", style.ERROR) if group.failed else "",
        "RETRYING": Cell(f"{group.retrying}{more}", style.WARNING) if group.retrying else "",
        "LAST SEEN": formatting.relative(group.last_seen, now),
        "JOB": group.latest_id,
        "MESSAGE": formatting.brief_error(group.latest_error).partition(": ")[2],
    }


def _group_as_dict(group: ErrorGroup) -> dict[str, Any]:
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
