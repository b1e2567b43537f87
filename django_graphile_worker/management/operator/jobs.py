"""``jobs``, ``show``, ``history`` and ``errors``: jobs, what became of them, and what went wrong."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from django_graphile_worker.exceptions import ResultTimeoutError, UnknownResultError
from django_graphile_worker.job_flags import headers_in, without_headers
from django_graphile_worker.management.arguments import Argument, job_id, period, seconds
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Columns, aware, capped, indented, relative
from django_graphile_worker.management.operator.verb import Options, Verb, did_you_mean, limit_of
from django_graphile_worker.payloads import decode_leniently
from django_graphile_worker.registry import label_of
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

NO_JOBS = job_list.Listed(rows=[], has_more=False)
PAYLOAD = "payload:"
CHOICES = [state.value for state in (*STATES, State.ANY)]
OUTCOMES = [outcome.name.lower() for outcome in HistoryOutcome]

JOBS: Columns = (
    *("id", "state", "task_identifier", "queue_name"),
    # Since when it runs, when it failed, or when it is due.
    ("WHEN", lambda job: job[{"running": "locked_at", "failed": "updated_at"}.get(job["state"], "run_at")]),
    ("TRIED", lambda job: f"{job['attempts_made']}/{job['max_attempts']}"),
    *("last_error", "key", "priority"),
)
ATTEMPTS: Columns = (
    *("job_id", "task_identifier", "outcome", "attempt", "seconds", "ended_at", "queue_name", "job_key", "worker_id"),
    "error",
)
ERRORS: Columns = (
    *("task_identifier", "error", capped("failed"), capped("retrying"), "last_seen", "latest_job_id", "latest_error"),
)


def chosen_criteria(cursor: Cursor, console: Console, options: Options, *, schema: str) -> Criteria | None:
    """Return the criteria of the chosen state, task, label and queue; None, after a warning, for an unknown name."""
    task, label, queue = (options.get(name) for name in ("task", "label", "queue"))
    if task is not None and not is_known(cursor, console, task, schema=schema):
        return None
    if queue is not None and not known_names.meaning(cursor, queue, schema=schema)[1]:
        console.warn(f"No job has the queue {queue!r}.")
        return None
    tasks: tuple[str, ...] = () if task is None else (task,)
    if label:
        chosen = tasks or known_names.known_tasks(cursor, schema=schema)
        tasks = tuple(name for name in chosen if label_of(name) == label)
        if not tasks:
            console.warn(f"No task has the label {label!r}.")
            return None
    return Criteria(state=State(options["state"]), tasks=tasks, queues=() if queue is None else (queue,))


def is_known(cursor: Cursor, console: Console, task: str, *, schema: str) -> bool:
    """Return whether the database has a task of this name; False after a warning."""
    if known_names.meaning(cursor, task, schema=schema)[0]:
        return True
    hint = did_you_mean(task, known_names.known_tasks(cursor, schema=schema))
    console.warn(f"No job has the task {task!r}.{hint}")
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
    arguments = (
        Argument("--state", "", "List jobs in this state (default: all).", choices=CHOICES, default="all"),
        Argument("--task", "TASK", "List only jobs of this task identifier."),
        Argument("--label", "LABEL", "List only jobs of Django tasks with this label."),
        Argument("--queue", "QUEUE", "List only jobs of this queue."),
        limit_of("jobs"),
    )

    def run(self, console: Console, options: Options) -> None:
        limit, found = options["limit"], NO_JOBS
        with console.reading() as (cursor, schema, now):
            chosen = chosen_criteria(cursor, console, options, schema=schema)
            if chosen is not None:
                found = job_list.list_jobs(cursor, chosen, limit=limit, schema=schema)
        jobs = map(_job_as_dict, found.rows)
        console.listing(jobs, JOBS, now, nothing="No jobs.", limit=limit, noun="jobs", has_more=found.has_more)


def _job_as_dict(job: JobRow | JobDetail) -> dict[str, Any]:
    """Return a job for JSON, without the payload, which may be large."""
    flags = flags_from(job.flags_text)
    same = ("queue_name", "priority", "run_at", "attempts", "attempts_made", "max_attempts", "key")
    return {
        "id": job.id,
        "state": job.state.value,
        "task_identifier": job.task_identifier or "",
        "label": label_of(job.task_identifier or ""),
        **{name: getattr(job, name) for name in same},
        "flags": sorted(without_headers(flags)),
        "headers": headers_in(flags),
        "locked_at": job.locked_at,
        "locked_by": job.locked_by,
        "last_error": job.error if isinstance(job, JobRow) else job.last_error,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
    }


class Show(Verb):
    name = "show"
    summary = "Show everything about one job: why it does not run, its progress, and its result."
    description = (
        "The result of a job that has succeeded is kept for as long as @task(keep_result=...) or the setting "
        "KEEP_RESULTS says. With --wait, wait until the job has ended; the exit code is then 1 if it has failed."
    )
    examples = ("42", "42 --wait 30", "42 --json")
    arguments = (
        Argument("job_id", "ID", "The id of the job.", job_id),
        Argument("--wait", "SECONDS", "Wait so many seconds until the job has ended.", seconds),
    )

    def run(self, console: Console, options: Options) -> None:
        number, timeout = options["job_id"], console.settings.worker_timeout
        if options["wait"] is not None:
            _wait(console, number, options["wait"])
        with console.reading() as (cursor, schema, now):
            job = job_detail(cursor, number, timeout=timeout, longest=None, schema=schema)
        outcome = result(number, **console.place)
        if job is None and outcome is None:
            raise CommandError(
                f"There is no job {number}, and no result of it: completed jobs are deleted, and their results are "
                "kept only if @task(keep_result=...) or the setting KEEP_RESULTS says so."
            )
        about = {"id": number} if job is None else _detail_as_dict(job, now)
        about["result"] = None if outcome is None else _result_as_dict(outcome)
        if console.is_json:
            console.dump(about)
        else:
            _write(console, about, None if job is None else job.payload_text, now)
        if options["wait"] is not None and outcome is not None and outcome.status is ResultStatus.FAILED:
            raise CommandError(f"Job {number} has failed.")


def _wait(console: Console, number: int, timeout: float) -> None:
    try:
        wait_for_result(number, timeout=timeout, **console.place)
    except UnknownResultError:
        # The caller looks for the row of the job.
        return
    except ResultTimeoutError as error:
        console.warn(str(error))


def _detail_as_dict(job: JobDetail, now: datetime) -> dict[str, Any]:
    return {
        **_job_as_dict(job),
        "revision": job.revision,
        "live_workers": job.live_workers,
        "payload": decode_leniently(job.payload_text),
        "recoveries": job.recoveries or 0,
        "waits_because": _reasons(job, now),
    }


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
        since = relative(job.limited_since, now)
        reasons.append(f"the key {job.limit_key!r} is at its limit, {job.limit_name!r}, since {since}")
    elif job.state is not State.READY:
        reasons.append(f"it is due {relative(job.run_at, now)}")
    if job.queue_locked_by is not None:
        reasons.append(f"its queue {job.queue_name!r} is held by {job.queue_locked_by}")
    if not job.live_workers:
        reasons.append("no live worker of this package has the task (other workers do not register theirs)")
    return reasons


def _result_as_dict(outcome: Result) -> dict[str, Any]:
    # The value is a property that raises if there is none.
    fields = {each.name: getattr(outcome, each.name) for each in dataclasses.fields(outcome) if each.name[0] != "_"}
    return fields | {
        "status": outcome.status.value,
        "attempts": [dataclasses.asdict(attempt) for attempt in outcome.attempts],
        "progress": None if outcome.progress is None else dataclasses.asdict(outcome.progress),
        "value": outcome.value if outcome.status is ResultStatus.SUCCEEDED else None,
    }


def _write(console: Console, about: dict[str, Any], payload_text: str | None, now: datetime) -> None:
    """Write the facts of a job; of one that is gone, those of its result. Texts of several lines come last."""
    outcome = about.pop("result") or {}
    facts = dict(outcome) if payload_text is None else about
    texts = {"payload": payload_text and _pretty(payload_text), "last error": facts.pop("last_error")}
    if outcome.get("status") == ResultStatus.SUCCEEDED:
        texts["value"] = json.dumps(outcome["value"], indent=2, ensure_ascii=False)
    if payload_text is None:
        facts["attempts"] = len(outcome["attempts"])
    progress = outcome.get("progress")
    console.facts(facts | {"payload": None, "value": None, "progress": progress and _progress(**progress)}, now)
    for name, text in texts.items():
        if text:
            console.say(f"{name}\n{indented(text)}")


def _progress(**fields: Any) -> str:
    progress = Progress(**fields)
    amount = f"{progress.done:g}" if progress.total is None else f"{progress.done:g} of {progress.total:g}"
    percent = "" if progress.percent is None else f" ({progress.percent} %)"
    return f"{amount}{percent} {progress.message}".rstrip()


def _pretty(payload_text: str) -> str:
    payload = decode_leniently(payload_text)
    # Text that Python cannot decode is shown as PostgreSQL stores it.
    if isinstance(payload, str) and not payload_text.startswith('"'):
        return payload_text
    return json.dumps(payload, indent=2, ensure_ascii=False)


class History(Verb):
    name = "history"
    summary = "List attempts that have ended, the latest first."
    description = (
        "Attempts of jobs that are deleted are listed, too. The history is kept for as long as the setting HISTORY "
        "says. Each WORD is a job id, a job key, a task, a queue, or a word of a payload, if HISTORY_PAYLOADS keeps "
        "payloads; payload:WORD is only a word of a payload."
    )
    examples = ("", "4711", "--task send_receipt --outcome permanently_failed", "order-4711 --since 7d --json")
    arguments = (
        Argument("words", "WORD", "What to look for; all words must match.", nargs="*"),
        Argument("--task", "TASK", "List only attempts of this task identifier."),
        Argument("--queue", "QUEUE", "List only attempts of jobs of this queue."),
        Argument("--key", "KEY", "List only attempts of jobs with this job key."),
        Argument("--outcome", "", "List only attempts that ended so.", choices=OUTCOMES),
        Argument("--since", "PERIOD", "List only this period, like 7d.", period),
        limit_of("attempts"),
    )

    def run(self, console: Console, options: Options) -> None:
        limit, settings = options["limit"], console.settings
        if settings.history is None:
            console.warn(
                'No history is kept: set GRAPHILE_WORKER["HISTORY"], for example to timedelta(days=30), and restart '
                "the workers."
            )
        with console.reading() as (cursor, schema, now):
            criteria = _history_criteria(options, now)
            page = past_attempts.find_attempts(cursor, criteria, schema=schema, limit=limit)
        has_more = page.next_token is not None and not page.is_cut_off
        attempts = map(_attempt_as_dict, page.rows)
        console.listing(
            attempts, ATTEMPTS, now, nothing="No attempts.", limit=limit, noun="attempts", has_more=has_more
        )
        if options["words"] and not page.rows and not settings.history_payloads:
            console.note(
                'Words of payloads are found only if GRAPHILE_WORKER["HISTORY_PAYLOADS"] was True when the attempts '
                "ended, and it is False."
            )
        if page.is_cut_off:
            console.note("The search stopped after many other attempts. Use --task, --queue or --since.")


def _history_criteria(options: Options, now: datetime) -> HistoryCriteria:
    outcome, since, words = options["outcome"], options["since"], options["words"]
    return HistoryCriteria(
        anywhere=tuple(word for word in words if not word.startswith(PAYLOAD)),
        payload=tuple(word.removeprefix(PAYLOAD) for word in words if word.startswith(PAYLOAD)),
        tasks=(options["task"],) if options["task"] else (),
        queues=(options["queue"],) if options["queue"] else (),
        keys=(options["key"],) if options["key"] else (),
        outcomes=(int(HistoryOutcome[outcome.upper()]),) if outcome else (),
        ended_at=(aware(now) - since if since else None, None),
    )


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
    arguments = (Argument("--task", "TASK", "List only jobs of this task identifier."),)

    def run(self, console: Console, options: Options) -> None:
        task = options["task"]
        with console.reading() as (cursor, schema, now):
            groups = error_groups(cursor, schema=schema)
            if task is not None:
                is_known(cursor, console, task, schema=schema)
        chosen = [_group_as_dict(group) for group in groups if task in (None, group.task_identifier)]
        console.listing(chosen, ERRORS, now, nothing="No job has failed.")
        if chosen and not console.is_json:
            console.note("To try failed jobs again: retry --task TASK --error ERROR")


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
