"""``events``: list what happened to workers, schedules, pauses and the database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser
from django.utils import translation

from django_graphile_worker.event_texts import GROUPS, KINDS, Style, describe
from django_graphile_worker.management.operator import arguments, times
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.tables import Column
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql.events import WARNING
from django_graphile_worker.sql.inspection import events
from django_graphile_worker.sql.inspection.events import EventCriteria, LoggedEvent
from django_graphile_worker.text import escaped, readable_duration

DEFAULT_LIMIT = 50
SEVERITIES = {1: "info", 2: "warning", 3: "error"}
# Seconds between two looks of --follow.
FOLLOW_INTERVAL = 2.0


class Events(Verb):
    name = "events"
    summary = "List what happened to workers, schedules and pauses, the latest first."
    description = (
        "List what happened to workers, schedules, pauses, limits, locks and the database, the latest first: for "
        "example, which workers were lost during the night, and what became of their jobs. Events are kept for as long "
        "as the setting EVENTS_RETENTION says."
    )
    examples = ("", "--problems --since 1d", "--kind worker_lost --json", "--follow")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--kind",
            action="append",
            choices=[*GROUPS, *KINDS],
            metavar="KIND",
            help=f"List only this kind of event, or group of kinds ({', '.join(GROUPS)}); can be repeated.",
        )
        parser.add_argument("--problems", action="store_true", help="List only warnings and errors.")
        parser.add_argument("--worker", metavar="WORKER", help="List only events of this worker id or host.")
        parser.add_argument("--since", type=arguments.period, metavar="PERIOD", help="List only this period, like 1d.")
        parser.add_argument(
            "--limit",
            type=arguments.positive,
            default=DEFAULT_LIMIT,
            metavar="N",
            help=f"List at most N events (default: {DEFAULT_LIMIT}).",
        )
        parser.add_argument(
            "--follow", action="store_true", help="Go on listing new events until Ctrl+C, the latest last."
        )

    def run(self, console: Console, options: Options) -> None:
        with console.reading() as (cursor, schema, now):
            criteria = _criteria(options, now)
            found = events.find(cursor, criteria, schema=schema, limit=options["limit"] + 1)
        shown = found[: options["limit"]]
        with translation.override(None):
            if options["follow"]:
                _follow(console, criteria, shown)
            elif console.is_json:
                console.dump([_as_dict(event) for event in shown])
            elif shown:
                console.table(_COLUMNS, [_row(event, now) for event in shown])
            else:
                console.note("No events.")
        if len(found) > len(shown):
            console.note(f"There are more events; these are the last {options['limit']}. Use --limit to list more.")


def _criteria(options: Options, now: datetime) -> EventCriteria:
    named = options["kind"]
    kinds = None if named is None else [kind for name in named for kind in GROUPS.get(name, ("", (name,)))[1]]
    return EventCriteria(
        kinds=kinds,
        severity=WARNING if options["problems"] else 1,
        worker=options["worker"],
        since=times.aware(now) - options["since"] if options["since"] else None,
    )


def _follow(console: Console, criteria: EventCriteria, shown: Sequence[LoggedEvent]) -> None:
    """Write events as they come, the latest last, until the user interrupts the command."""
    written: dict[int, datetime] = {}
    found = list(shown)
    try:
        while True:
            for event in reversed(found):
                if written.get(event.id) != event.last_at:
                    written[event.id] = event.last_at
                    _write_line(console, event)
            # Events send no notification: the statements that write them must not cost more for a reader.
            time.sleep(FOLLOW_INTERVAL)
            with console.reading() as (cursor, schema, _):
                found = events.find(cursor, criteria, schema=schema, limit=DEFAULT_LIMIT)
    except KeyboardInterrupt:
        return


def _write_line(console: Console, event: LoggedEvent) -> None:
    if console.is_json:
        console.dump(_as_dict(event))
    else:
        severity = SEVERITIES.get(event.severity, "")
        console.say(escaped(f"{times.absolute(event.last_at)} {severity}: {_text(event)}"))


_COLUMNS = (Column("TIME"), Column("SEVERITY"), Column("KIND"), Column("EVENT", gives_way=True))


def _row(event: LoggedEvent, now: datetime) -> list[str]:
    return [times.both(event.last_at, now), SEVERITIES.get(event.severity, ""), event.kind, _text(event)]


def _text(event: LoggedEvent) -> str:
    style = Style(duration=readable_duration, moment=times.absolute)
    return " ".join(map(str, describe(event, style)))


def _as_dict(event: LoggedEvent) -> dict[str, Any]:
    return {
        "id": event.id,
        "kind": event.kind,
        "severity": SEVERITIES.get(event.severity, str(event.severity)),
        "subject": event.subject,
        "worker_id": event.worker_id,
        "first_at": event.first_at,
        "last_at": event.last_at,
        "number": event.number,
        "text": _text(event),
        "details": event.details,
        "dismissed_at": event.dismissed_at,
        "dismissed_by": event.dismissed_by,
    }
