"""The options of ``add`` and ``edit``, and the fields of a schedule that they set."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker.management.operator import arguments
from django_graphile_worker.management.operator.schedules.moments import parse_moment
from django_graphile_worker.management.operator.verb import Options
from django_graphile_worker.models import Schedule
from django_graphile_worker.schedules.words import parse_interval
from django_graphile_worker.text import quoted

# The options that tell when a schedule fires, and their fields. A schedule has exactly one of them.
TIMES = {"cron": "cron", "every": "interval", "run_at": "run_at"}
MOMENTS = ("run_at", "starts_at", "ends_at")
# An empty text removes what these options have set before.
REMOVES = "; '' removes it"


def add_definition(parser: CommandParser, *, is_new: bool) -> None:
    """Add the options of a definition."""
    removes = "" if is_new else REMOVES
    _add_times(parser, removes)
    _add_job_options(parser, removes)
    parser.add_argument(
        "--missed",
        choices=[choice.value for choice in Schedule.Missed],
        help="What happens to times at which no worker ran: none of them runs, the last, or all within "
        "--missed-within (default: skip).",
    )
    parser.add_argument(
        "--missed-within", metavar="PERIOD", help="With --missed all, which it implies: not older than this, like 2d."
    )
    parser.add_argument(
        "--overlap",
        choices=[choice.value for choice in Schedule.Overlap],
        help="What happens if the last run is not over: both run, the new run is skipped, or it waits (default: "
        "allow).",
    )
    parser.add_argument("--description", metavar="TEXT", help="What it is for, for other people.")
    parser.add_argument("--by", metavar="NAME", help="The name to record (default: the user of this process).")
    parser.add_argument("--dry-run", action="store_true", help="Check it and show its next times, but change nothing.")


def _add_times(parser: CommandParser, removes: str) -> None:
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--cron", metavar="LINE", help="Fire at these minutes: '0 9 * * 1-5', or @hourly and others.")
    when.add_argument("--every", metavar="INTERVAL", help="Fire at this interval: '10 s', 90m, '1 day'.")
    when.add_argument("--run-at", metavar="TIME", help="Fire once: +5m, or a time like 2026-05-01T12:00.")
    parser.add_argument(
        "--time-zone",
        metavar="ZONE",
        help="The time zone of the cron line, and of times that name no other (default: UTC).",
    )
    parser.add_argument("--starts-at", metavar="TIME", help=f"Do not fire before this time{removes}.")
    parser.add_argument("--ends-at", metavar="TIME", help=f"Do not fire at this time or after it{removes}.")


def _add_job_options(parser: CommandParser, removes: str) -> None:
    default = f" (default: that of the task){removes}."
    parser.add_argument("--queue", dest="queue_name", metavar="QUEUE", help=f"Add the jobs to this queue{default}")
    parser.add_argument("--priority", metavar="N", help=f"The priority of the jobs; lower numbers run first{default}")
    parser.add_argument("--max-attempts", metavar="N", help=f"Allow each job at most N attempts{default}")
    parser.add_argument(
        "--key", dest="job_key", metavar="KEY", help=f"Replace the waiting job with this key, if any{default}"
    )


def values_of(options: Options, *, zone: str, now: datetime) -> dict[str, Any]:
    """Return the fields that the options set, and their values; raise CommandError for a value that is none."""
    values: dict[str, Any] = {}
    zone = options["time_zone"] if options["time_zone"] is not None else zone
    for name in ("task", "description", "missed", "overlap", "time_zone"):
        if options[name] is not None:
            values[name] = options[name]
    if options["payload"] is not None:
        values["payload"] = arguments.payload(options["payload"])
    for option, field in TIMES.items():
        if options[option] is not None:
            values |= dict.fromkeys(TIMES.values()) | {field: options[option]}
    readers: dict[str, Callable[[str], Any]] = {
        "interval": parse_interval,
        **dict.fromkeys(MOMENTS, lambda text: parse_moment(text, zone=zone, now=now)),
        "queue_name": str,
        "job_key": str,
        "priority": _whole,
        "max_attempts": _whole,
    }
    for field, read in readers.items():
        given = values.get(field) if field in TIMES.values() else options[field]
        if given is not None:
            values[field] = _read(field, given, read)
    return values | _missed(options)


def _read(field: str, text: str, read: Callable[[str], Any]) -> Any:
    if not text and field not in TIMES.values():
        return None
    try:
        return read(text)
    except ValueError as error:
        raise CommandError(f"{_flag(field)}: {error}") from error


def _flag(field: str) -> str:
    names = {"interval": "every", "queue_name": "queue", "job_key": "key"}
    return f"--{names.get(field, field).replace('_', '-')}"


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected a whole number, got {quoted(text)}") from None


def _missed(options: Options) -> dict[str, Any]:
    """Return the policy for missed times: --missed-within implies ``all``, and the others have no such period."""
    if options["missed_within"] is None:
        return {} if options["missed"] in (None, Schedule.Missed.ALL) else {"missed_within": None}
    if options["missed"] not in (None, Schedule.Missed.ALL):
        raise CommandError(f"--missed-within: expected --missed all or no --missed, got --missed {options['missed']}.")
    within = _read("missed_within", options["missed_within"], parse_interval)
    return {"missed": Schedule.Missed.ALL.value, "missed_within": within}
