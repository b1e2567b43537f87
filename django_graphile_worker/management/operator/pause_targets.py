"""What the verbs ``pause`` and ``resume`` share: their options, and how they show a pause."""

from __future__ import annotations

import getpass
from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser

from django_graphile_worker.management.operator import times
from django_graphile_worker.management.operator.verb import Options
from django_graphile_worker.sql.pauses import Pause
from django_graphile_worker.text import shown


def add_target(parser: CommandParser, *, is_required: bool) -> None:
    """Add the options that name what is paused."""
    target = parser.add_mutually_exclusive_group(required=is_required)
    target.add_argument("--queue", metavar="QUEUE", help="The name of a queue.")
    target.add_argument("--task", metavar="TASK", help="The identifier of a task.")
    target.add_argument("--flag", metavar="FLAG", help="A flag: all jobs that have it.")
    parser.add_argument("--by", metavar="NAME", help="The name to record (default: the user of this process).")


def target_of(options: Options) -> dict[str, Any]:
    """Return the arguments of the API that name what is paused; empty if no option was given."""
    return {kind: options[kind] for kind in ("queue", "task", "flag") if options[kind] is not None}


def name_of_user(options: Options) -> str:
    """Return the name that is recorded."""
    if options["by"] is not None:
        return str(options["by"])
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A container may run under a number that no user has.
        return ""


def sentence(pause: Pause, now: datetime) -> str:
    """Return what is paused, until when, by whom and why."""
    until = "until it is resumed" if pause.until is None else f"until {times.both(pause.until, now)}"
    by = f", by {shown(pause.by)}" if pause.by else ""
    reason = f": {shown(pause.reason)}" if pause.reason else ""
    return f"{pause.kind} {shown(pause.name)} {until}{by}{reason}"


def as_dict(pause: Pause) -> dict[str, Any]:
    return {
        "kind": pause.kind.value,
        "name": pause.name,
        "paused_at": pause.paused_at,
        "until": pause.until,
        "reason": pause.reason,
        "by": pause.by,
    }
