"""``events``: what happened to workers, schedules and pauses lately."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser
from django.utils import translation

from django_graphile_worker.event_texts import GROUPS, KINDS, Style, describe
from django_graphile_worker.management.operator import formatting, verb
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql import events
from django_graphile_worker.sql.events import WARNING, EventCriteria, LoggedEvent
from django_graphile_worker.text import escaped, readable_duration

DEFAULT_LIMIT = 50
SEVERITIES = {1: "info", 2: "warning", 3: "error"}
# The seconds after which --follow reads again.
FOLLOW_INTERVAL = 2.0


class Events(Verb):
    name = "events"
    summary = "List what happened to workers, schedules and pauses, the latest first."
    description = (
        "Events are also those of limits, locks and the database: for example, which workers were lost during the "
        "night, and what became of their jobs. They are kept for as long as the setting EVENTS_RETENTION says."
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
        parser.add_argument("--since", type=verb.period, metavar="PERIOD", help="List only this period, like 1d.")
        verb.add_limit(parser, "events", default=DEFAULT_LIMIT)
        parser.add_argument(
            "--follow", action="store_true", help="Go on listing new events until Ctrl+C, the latest last."
        )

    def run(self, console: Console, options: Options) -> None:
        limit = options["limit"]
        with console.reading() as (cursor, schema, now):
            criteria = _criteria(options, now)
            found = events.find_events(cursor, criteria, schema=schema, limit=limit + 1)
        with translation.override(None):
            if options["follow"]:
                _follow(console, criteria, found[:limit])
                return
            console.listing(
                found, _as_dict, lambda event: _row(event, now), nothing="No events.", limit=limit, noun="events"
            )


def _criteria(options: Options, now: datetime) -> EventCriteria:
    named = options["kind"]
    kinds = None if named is None else [kind for name in named for kind in GROUPS.get(name, ("", (name,)))[1]]
    return EventCriteria(
        kinds=kinds,
        severity=WARNING if options["problems"] else 1,
        worker=options["worker"],
        since=formatting.aware(now) - options["since"] if options["since"] else None,
    )


def _follow(console: Console, criteria: EventCriteria, shown: Sequence[LoggedEvent]) -> None:
    """Write events as they come, the latest last, until the user interrupts the command."""
    written: dict[int, datetime] = {}
    found = shown
    try:
        while True:
            for event in reversed(found):
                if written.get(event.id) != event.last_at:
                    written[event.id] = event.last_at
                    _write_line(console, event)
            # Events send no notification: the statements that write them must not cost more for a reader.
            time.sleep(FOLLOW_INTERVAL)
            with console.reading() as (cursor, schema, _):
                found = events.find_events(cursor, criteria, schema=schema, limit=DEFAULT_LIMIT)
    except KeyboardInterrupt:
        return


def _write_line(console: Console, event: LoggedEvent) -> None:
    if console.is_json:
        console.dump(_as_dict(event))
    else:
        severity = SEVERITIES.get(event.severity, "")
        console.say(escaped(f"{formatting.absolute(event.last_at)} {severity}: {_text(event)}"))


def _row(event: LoggedEvent, now: datetime) -> formatting.Row:
    return {
        "TIME": formatting.both(event.last_at, now),
        "SEVERITY": SEVERITIES.get(event.severity, ""),
        "KIND": event.kind,
        "EVENT": _text(event),
    }


def _text(event: LoggedEvent) -> str:
    style = Style(duration=readable_duration, moment=formatting.absolute)
    return " ".join(map(str, describe(event, style)))


def _as_dict(event: LoggedEvent) -> dict[str, Any]:
    names = ("id", "kind", "subject", "worker_id", "first_at", "last_at", "number", "details")
    return {
        **{name: getattr(event, name) for name in names},
        "severity": SEVERITIES.get(event.severity, str(event.severity)),
        "text": _text(event),
        "dismissed_at": event.dismissed_at,
        "dismissed_by": event.dismissed_by,
    }
