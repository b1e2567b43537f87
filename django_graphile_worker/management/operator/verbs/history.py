"""``history``: list attempts that have ended, also of jobs that are deleted."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser

from django_graphile_worker.management.operator import arguments, tables, times
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.tables import Column
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql.history import HistoryOutcome
from django_graphile_worker.sql.inspection.history_search import past_attempts
from django_graphile_worker.sql.inspection.history_search.criteria import HistoryCriteria
from django_graphile_worker.sql.inspection.history_search.past_attempts import PastAttempt
from django_graphile_worker.text import readable_duration

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
        parser.add_argument(
            "--limit",
            type=arguments.positive,
            default=DEFAULT_LIMIT,
            metavar="N",
            help=f"List at most N attempts (default: {DEFAULT_LIMIT}).",
        )

    def run(self, console: Console, options: Options) -> None:
        if console.settings.history is None:
            console.warn(
                'No history is kept: set GRAPHILE_WORKER["HISTORY"], for example to timedelta(days=30), and restart '
                "the workers."
            )
        with console.reading() as (cursor, schema, now):
            page = past_attempts.find(cursor, _criteria(options, now), schema=schema, limit=options["limit"])
        if console.is_json:
            console.dump([_as_dict(row) for row in page.rows])
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
        ended_at=(times.aware(now) - since if since else None, None),
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


def _row(row: PastAttempt, now: datetime) -> list[str]:
    return [
        str(row.job_id),
        row.task_identifier,
        HistoryOutcome(row.outcome).name.lower(),
        str(row.attempt),
        "" if row.seconds is None else readable_duration(row.seconds),
        times.both(row.ended_at, now),
        row.queue_name or "",
        row.job_key or "",
        row.worker_id or "",
        tables.brief_error(row.error),
    ]


def _as_dict(row: PastAttempt) -> dict[str, Any]:
    shown = row._asdict() | {"outcome": HistoryOutcome(row.outcome).name.lower(), "seconds": row.seconds}
    return {name: value for name, value in shown.items() if name not in ("token", "payload_text")}
