"""``schedules add`` and ``edit``: define a schedule with the options of the command line."""

from __future__ import annotations

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.schedules import texts
from django_graphile_worker.management.operator.schedules.checking import changing, refuse_mistakes
from django_graphile_worker.management.operator.schedules.definition_options import TIMES, add_definition, values_of
from django_graphile_worker.management.operator.schedules.entries import is_same
from django_graphile_worker.management.operator.schedules.found import add_names, database_of, find, refuse_from_code
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.models import Schedule
from django_graphile_worker.text import quoted, shown

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
            raise CommandError(f"Expected a new name, got {quoted(name)}, which a schedule has. Use schedules edit.")
        if all(options[option] is None for option in TIMES):
            raise CommandError("Expected --cron, --every or --run-at, got none of them.")
        values = values_of(options, zone="UTC", now=console.now())
        schedule = Schedule(name=name, is_enabled=not options["disabled"], **values)
        refuse_mistakes(schedule)
        if not options["dry_run"]:
            with changing(using, options):
                schedule.save(using=using, force_insert=True)
        _report(console, schedule, "Would add" if options["dry_run"] else "Added", options)


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
                raise CommandError("Expected what to change, got no option. Use schedules edit --help.")
            console.note(f"{shown(schedule.name)} has these values already.")
        for name, value in changes.items():
            setattr(schedule, name, value)
        refuse_mistakes(schedule)
        if changes and not options["dry_run"]:
            with changing(using, options):
                schedule.save(using=using, update_fields=list(changes))
        _report(console, schedule, "Would change" if options["dry_run"] else "Changed", options, is_quiet=not changes)


def _report(console: Console, schedule: Schedule, word: str, options: Options, *, is_quiet: bool = False) -> None:
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
