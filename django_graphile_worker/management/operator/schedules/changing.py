"""``schedules add``, ``edit``, ``pause``, ``resume``, ``enable``, ``disable``, ``run`` and ``delete``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker.management.operator import arguments, formatting, lookups
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.schedules import texts
from django_graphile_worker.management.operator.schedules.files import is_same
from django_graphile_worker.management.operator.schedules.found import (
    add_names,
    changing,
    database_of,
    find,
    find_all,
    refuse_errors,
    refuse_from_code,
)
from django_graphile_worker.management.operator.schedules.texts import parse_moment
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.models import Schedule
from django_graphile_worker.schedules.words import parse_interval
from django_graphile_worker.text import quoted, shown

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
    arguments.add_by(parser)
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
        raise CommandError(f"--missed-within cannot be used with --missed {options['missed']}.")
    within = _read("missed_within", options["missed_within"], parse_interval)
    return {"missed": Schedule.Missed.ALL.value, "missed_within": within}


PAYLOAD = "The payload as JSON or JSON5; - reads it from standard input"


class Add(Verb):
    name = "add"
    summary = "Add a schedule."
    description = (
        "Expects exactly one of --cron, --every and --run-at. Workers obey within two seconds, without a restart. "
        "Options of jobs that are not given are those of the task."
    )
    examples = (
        "nightly-report send_report --cron '0 4 * * *' --time-zone Europe/Berlin --missed once",
        "sync-stock sync_stock '{shop: 7}' --every '10 s' --overlap skip",
        "launch send_newsletter --run-at 2026-12-01T09:00 --dry-run",
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_names(parser, is_several=False)
        parser.add_argument("task", metavar="TASK", help="The identifier of the task.")
        parser.add_argument("payload", nargs="?", metavar="PAYLOAD", help=f"{PAYLOAD} (default: {{}}).")
        add_definition(parser, is_new=True)
        parser.add_argument("--disabled", action="store_true", help="Do not fire before it is enabled.")

    def run(self, console: Console, options: Options) -> None:
        using, name = database_of(console), options["name"]
        if Schedule.objects.using(using).filter(name=name).exists():
            raise CommandError(f"There is a schedule {quoted(name)} already. Use schedules edit.")
        if all(options[option] is None for option in TIMES):
            raise CommandError("One of --cron, --every and --run-at is required.")
        values = values_of(options, zone="UTC", now=console.now())
        schedule = Schedule(name=name, is_enabled=not options["disabled"], **values)
        refuse_errors(schedule)
        if not options["dry_run"]:
            with changing(using, options):
                schedule.save(using=using, force_insert=True)
        _report_definition(console, schedule, "Would add" if options["dry_run"] else "Added", options)


class Edit(Verb):
    name = "edit"
    summary = "Change a schedule."
    description = (
        "Changes only what the options name; '' removes a value that may be left out. At a tick, either the old or the "
        "new definition counts. If the times change, ticks are counted from now on."
    )
    examples = (
        "nightly-report --cron '30 4 * * *'",
        "nightly-report --payload '{format: \"pdf\"}' --ends-at 2027-01-01",
        "sync-stock --every 1m --queue '' --by maria",
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_names(parser, is_several=False)
        parser.add_argument("--rename", metavar="NAME", help="Give it another name.")
        parser.add_argument("--task", metavar="TASK", help="Run another task.")
        parser.add_argument("--payload", metavar="PAYLOAD", help=f"{PAYLOAD}.")
        add_definition(parser, is_new=False)

    def run(self, console: Console, options: Options) -> None:
        using, schedule = database_of(console), find(console, options["name"])
        refuse_from_code(schedule)
        values = values_of(options, zone=schedule.time_zone, now=console.now())
        if options["rename"] is not None:
            values["name"] = options["rename"]
        changes = {name: value for name, value in values.items() if not is_same(name, getattr(schedule, name), value)}
        if not changes:
            if not values:
                raise CommandError("There is nothing to change. Use schedules edit --help.")
            console.note(f"{shown(schedule.name)} has these values already.")
        for name, value in changes.items():
            setattr(schedule, name, value)
        refuse_errors(schedule)
        if changes and not options["dry_run"]:
            with changing(using, options):
                schedule.save(using=using, update_fields=list(changes))
        _report_definition(
            console, schedule, "Would change" if options["dry_run"] else "Changed", options, is_quiet=not changes
        )


def _report_definition(
    console: Console, schedule: Schedule, word: str, options: Options, *, is_quiet: bool = False
) -> None:
    if not options["dry_run"]:
        schedule.refresh_from_db()
    now = console.now()
    if console.is_json:
        console.dump(texts.as_dict(schedule, now))
        return
    if not is_quiet:
        console.say(console.style.SUCCESS(f"{word} {texts.sentence(schedule, now)}."))
    if options["dry_run"]:
        for moment in texts.coming(schedule, now, texts.NUMBER_OF_TIMES):
            console.say(f"  {texts.in_its_zone(moment, schedule)}")


class ByNames(Verb):
    """A verb that changes each of some schedules, or none of them."""

    # What is said of a schedule for which there was nothing to change.
    already: ClassVar[str] = ""

    def add_arguments(self, parser: CommandParser) -> None:
        add_names(parser, is_several=True)
        arguments.add_by(parser)

    def run(self, console: Console, options: Options) -> None:
        found = find_all(console, options["names"])
        with changing(database_of(console), options):
            said = [self.change(console, schedule, options) for schedule in found]
        pairs = list(zip(found, said, strict=True))
        if console.is_json:
            console.dump([{"name": each.name, "was_changed": text is not None} for each, text in pairs])
            return
        for schedule, text in pairs:
            if text is None:
                console.note(f"{shown(schedule.name)} {self.already}.")
            else:
                console.say(console.style.SUCCESS(f"{shown(schedule.name)} {text}."))

    @abstractmethod
    def change(self, console: Console, schedule: Schedule, options: Options) -> str | None:
        """Change a schedule and return what happened; None if there was nothing to change."""


class Pause(ByNames):
    name = "pause"
    summary = "Do not fire schedules until they are resumed, or until a time."
    description = "The times that a schedule misses while it is paused are not made up for, whatever its policy."
    examples = ("nightly-report", "sync-stock sync-prices --until +2h")

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        until = "End the pause then: +2h, or 2026-05-01T12:00 in the time zone of the schedule."
        parser.add_argument("--until", metavar="TIME", help=until)

    def change(self, console: Console, schedule: Schedule, options: Options) -> str | None:
        if options["until"] is None:
            schedule.pause(by=lookups.name_of_user(options))
            return "is paused until it is resumed"
        now = console.now()
        try:
            until = parse_moment(options["until"], zone=schedule.time_zone, now=now)
        except ValueError as error:
            raise CommandError(f"--until: {error}") from error
        if until <= now:
            raise CommandError(f"--until: expected a time in the future, got {formatting.both(until, now)}.")
        schedule.pause(until=until, by=lookups.name_of_user(options))
        return f"is paused until {formatting.both(until, now)}"


class Resume(ByNames):
    name = "resume"
    summary = "Fire paused schedules again, from now on."
    examples = ("nightly-report",)
    already = "was not paused"

    def change(self, console: Console, schedule: Schedule, options: Options) -> str | None:
        if schedule.paused_until is None:
            return None
        schedule.resume(by=lookups.name_of_user(options))
        return "is resumed from now on"


class Enable(ByNames):
    name = "enable"
    summary = "Enable schedules."
    examples = ("nightly-report",)
    already = "was enabled already"
    enables = True

    def change(self, console: Console, schedule: Schedule, options: Options) -> str | None:
        refuse_from_code(schedule)
        if schedule.is_enabled is self.enables:
            return None
        schedule.is_enabled = self.enables
        if self.enables:
            schedule.save(update_fields=["is_enabled"])
        else:
            # Without the checks of save(): a definition that is not valid can be disabled.
            Schedule.objects.using(database_of(console)).filter(pk=schedule.pk).update(is_enabled=False)
        return "is enabled" if self.enables else "is disabled"


class Disable(Enable):
    name = "disable"
    summary = "Disable schedules: they do not fire until they are enabled."
    examples = ("nightly-report sync-stock",)
    already = "was disabled already"
    enables = False


class Delete(ByNames):
    name = "delete"
    summary = "Delete schedules. Nothing fires after that; jobs that were added stay."
    examples = ("nightly-report",)

    def change(self, console: Console, schedule: Schedule, options: Options) -> str | None:
        if schedule.is_in_code:
            refuse_from_code(schedule)
        schedule.delete()
        return "is deleted"


class Run(Verb):
    name = "run"
    summary = "Add a job for a schedule now, beside its times."
    description = "It works for a disabled or paused schedule, too, and does not change its next time."
    examples = ("nightly-report", "nightly-report --by maria --json")

    def add_arguments(self, parser: CommandParser) -> None:
        add_names(parser, is_several=False)
        arguments.add_by(parser)

    def run(self, console: Console, options: Options) -> None:
        schedule = find(console, options["name"])
        with changing(database_of(console), options):
            job: Any = schedule.run_now(by=lookups.name_of_user(options))
        if console.is_json:
            console.dump({"name": schedule.name, "task": schedule.task, "job_id": job})
        else:
            console.say(console.style.SUCCESS(f"Added {shown(schedule.task)} #{job} for {shown(schedule.name)}."))
