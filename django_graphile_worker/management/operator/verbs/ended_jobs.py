"""``result`` and ``history``: what became of jobs."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker.exceptions import ResultTimeoutError, UnknownResultError
from django_graphile_worker.management.operator import arguments, formatting
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Cell, Column
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.results import Result, ResultStatus, result, wait_for_result
from django_graphile_worker.sql.inspection import past_attempts
from django_graphile_worker.sql.inspection.past_attempts import HistoryCriteria, HistoryRow
from django_graphile_worker.sql.progress import Progress
from django_graphile_worker.sql.results import HistoryOutcome
from django_graphile_worker.text import escaped, readable_duration


class ShowResult(Verb):
    name = "result"
    summary = "Show what became of a job: its status, its progress, and what its task returned."
    description = (
        "Show what became of a job. The result of a job that has succeeded is kept for as long as "
        "@task(keep_result=...) or the setting KEEP_RESULTS says. With --wait, wait until the job has ended. The exit "
        "code is 1 if the job has failed."
    )
    examples = ("42", "42 --wait 30", "42 --json")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_id", type=arguments.job_id, metavar="ID", help="The id of the job.")
        parser.add_argument(
            "--wait",
            type=arguments.seconds,
            metavar="SECONDS",
            help="Wait up to this many seconds until the job has ended.",
        )

    def run(self, console: Console, options: Options) -> None:
        found = _read(console, options)
        if found is None:
            raise CommandError(
                f"There is no job {options['job_id']}, and no result of it: completed jobs are deleted, and their "
                "results are kept only if @task(keep_result=...) or the setting KEEP_RESULTS says so."
            )
        if console.is_json:
            console.dump(_as_dict(found))
        else:
            console.say(_as_text(found, console.now()))
        if found.status is ResultStatus.FAILED:
            raise CommandError(f"Job {found.job_id} has failed.")


def _read(console: Console, options: Options) -> Result | None:
    if options["wait"] is not None:
        try:
            return wait_for_result(options["job_id"], timeout=options["wait"], **console.place)
        except UnknownResultError:
            return None
        except ResultTimeoutError as error:
            console.warn(str(error))
    return result(options["job_id"], **console.place)


def _as_dict(found: Result) -> dict[str, Any]:
    # The value is a property that raises if there is none.
    shown = {field.name: getattr(found, field.name) for field in dataclasses.fields(found) if field.name[0] != "_"}
    return shown | {
        "status": found.status.value,
        "attempts": [dataclasses.asdict(attempt) for attempt in found.attempts],
        "progress": None if found.progress is None else dataclasses.asdict(found.progress),
        "value": found.value if found.status is ResultStatus.SUCCEEDED else None,
    }


def _as_text(found: Result, now: datetime) -> str:
    pairs: list[tuple[str, Cell | str]] = [
        ("job", str(found.job_id)),
        ("task", found.task_identifier),
        ("status", found.status.value),
        ("progress", _progress(found.progress)),
        ("queue", found.queue_name or ""),
        ("worker", found.worker_id or ""),
        ("added", formatting.both(found.added_at, now)),
        ("started", formatting.both(found.last_started_at, now)),
        ("finished", formatting.both(found.finished_at, now)),
        ("attempts", str(len(found.attempts)) if found.attempts else ""),
        ("cancelled by", escaped(found.cancelled_by or "")),
        ("reason", escaped(found.cancel_reason or "")),
    ]
    text = [formatting.facts([(name, value) for name, value in pairs if value not in ("", formatting.EMPTY)])]
    if found.status is ResultStatus.SUCCEEDED:
        text += ["value", _indented(json.dumps(found.value, indent=2, ensure_ascii=False))]
    if found.last_error:
        text += ["last error", _indented(found.last_error)]
    return "\n".join(text)


def _progress(progress: Progress | None) -> str:
    if progress is None:
        return ""
    amount = f"{progress.done:g}" if progress.total is None else f"{progress.done:g} of {progress.total:g}"
    percent = "" if progress.percent is None else f" ({progress.percent} %)"
    return f"{amount}{percent} {progress.message}".rstrip()


def _indented(text: str) -> str:
    return "\n".join(f"  {escaped(line)}" for line in text.splitlines())


DEFAULT_LIMIT = 50
PAYLOAD = "payload:"


class History(Verb):
    name = "history"
    summary = "List attempts that have ended, the latest first."
    description = (
        "List attempts that have ended, the latest first, also of jobs that are deleted. The history is kept for as "
        "long as the setting HISTORY says. Each WORD is a job id, a job key, a task, a queue, or a word of a payload, "
        "if HISTORY_PAYLOADS keeps payloads; payload:WORD is only a word of a payload."
    )
    examples = ("", "4711", "--task send_receipt --outcome permanently_failed", "order-4711 --since 7d --json")

    def add_arguments(self, parser: CommandParser) -> None:
        outcomes = [each.name.lower() for each in HistoryOutcome]
        parser.add_argument("words", nargs="*", metavar="WORD", help="What to look for; all words must match.")
        parser.add_argument("--task", metavar="TASK", help="List only attempts of this task identifier.")
        parser.add_argument("--queue", metavar="QUEUE", help="List only attempts of jobs of this queue.")
        parser.add_argument("--key", metavar="KEY", help="List only attempts of jobs with this job key.")
        parser.add_argument("--outcome", choices=outcomes, help="List only attempts that ended so.")
        parser.add_argument("--since", type=arguments.period, metavar="PERIOD", help="List only this period, like 7d.")
        arguments.add_limit(parser, "attempts", default=DEFAULT_LIMIT)

    def run(self, console: Console, options: Options) -> None:
        if console.settings.history is None:
            console.warn(
                'No history is kept: set GRAPHILE_WORKER["HISTORY"], for example to timedelta(days=30), and restart '
                "the workers."
            )
        with console.reading() as (cursor, schema, now):
            page = past_attempts.find_attempts(cursor, _criteria(options, now), schema=schema, limit=options["limit"])
        if console.is_json:
            console.dump([_attempt_as_dict(row) for row in page.rows])
        elif page.rows:
            console.table(_COLUMNS, [_row(row, now) for row in page.rows])
        else:
            console.note("No attempts.")
        if options["words"] and not page.rows and not console.settings.history_payloads:
            console.note(
                'Words of payloads are found only if GRAPHILE_WORKER["HISTORY_PAYLOADS"] was True when the attempts '
                "ended, and it is False."
            )
        if page.is_cut_off:
            console.note("The search stopped after many other attempts. Use --task, --queue or --since.")
        elif page.next_token:
            console.note(f"There are more attempts; these are the last {options['limit']}. Use --limit to list more.")


def _criteria(options: Options, now: datetime) -> HistoryCriteria:
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


_COLUMNS = (
    Column("JOB", is_number=True),
    Column("TASK", gives_way=True),
    Column("OUTCOME"),
    Column("ATTEMPT", is_number=True),
    Column("TOOK", is_number=True),
    Column("ENDED", gives_way=True),
    Column("QUEUE", gives_way=True),
    Column("KEY", gives_way=True),
    Column("WORKER", gives_way=True),
    Column("ERROR", gives_way=True),
)


def _row(row: HistoryRow, now: datetime) -> list[str]:
    return [
        str(row.job_id),
        row.task_identifier,
        HistoryOutcome(row.outcome).name.lower(),
        str(row.attempt),
        "" if row.seconds is None else readable_duration(row.seconds),
        formatting.both(row.ended_at, now),
        row.queue_name or "",
        row.job_key or "",
        row.worker_id or "",
        formatting.brief_error(row.error),
    ]


def _attempt_as_dict(row: HistoryRow) -> dict[str, Any]:
    shown = row._asdict() | {"outcome": HistoryOutcome(row.outcome).name.lower(), "seconds": row.seconds}
    return {name: value for name, value in shown.items() if name not in ("token", "payload_text")}
