"""``schedules export`` and ``import``: all schedules as a file that people read and keep under version control."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted
from django_graphile_worker.management.operator.schedules import schedule_file, texts
from django_graphile_worker.management.operator.schedules.checking import changing
from django_graphile_worker.management.operator.schedules.entries import FIELDS, written
from django_graphile_worker.management.operator.schedules.found import database_of, find_all
from django_graphile_worker.management.operator.schedules.schedule_file import Change, Difference
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.models import Schedule
from django_graphile_worker.text import quoted, shown


class Export(Verb):
    name = "export"
    summary = "Write schedules as JSON, for 'schedules import'."
    description = (
        "The file has the schedules by name, and of each only what differs from the defaults: the same schedules give "
        "the same file. What workers have recorded, such as the last time, is not in it, and neither are the schedules "
        "of @task(every=...)."
    )
    examples = ("> schedules.json", "nightly-report sync-stock")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", nargs="*", metavar="NAME", help="Write only these schedules (default: all).")

    def run(self, console: Console, options: Options) -> None:
        using, names = database_of(console), options["names"]
        found = find_all(console, names) if names else Schedule.objects.using(using).filter(is_from_code=False)
        console.say(schedule_file.text_of(found))


class Import(Verb):
    name = "import"
    summary = "Add and change schedules so that they are as a file says."
    description = (
        "The file is one of 'schedules export', or written by hand. Either all of it is imported or, if it has "
        "mistakes, nothing: each mistake is named. A field that the file leaves out gets its default; only a pause is "
        "left as it is. Schedules that the file does not have stay, unless --delete-others is given. To import a file "
        "twice changes nothing."
    )
    examples = (
        "schedules.json",
        "schedules.json --dry-run",
        "schedules.json --check",
        "- --delete-others < schedules.json",
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="The file; - reads standard input.")
        parser.add_argument("--dry-run", action="store_true", help="Show what would change, and change nothing.")
        parser.add_argument("--check", action="store_true", help="As --dry-run; exit with 1 if anything would change.")
        parser.add_argument("--delete-others", action="store_true", help="Delete schedules that are not in the file.")
        parser.add_argument("--by", metavar="NAME", help="The name to record (default: the user of this process).")

    def run(self, console: Console, options: Options) -> None:
        using, entries = database_of(console), schedule_file.read(options["file"])
        is_dry = options["dry_run"] or options["check"]
        with changing(using, options):
            rows = Schedule.objects.using(using).order_by("pk")
            if not is_dry:
                # No other change may come between. Workers pass over locked rows, and fire them afterwards.
                rows = rows.select_for_update()
            found = schedule_file.difference(
                entries, {schedule.name: schedule for schedule in rows}, deletes_others=options["delete_others"]
            )
            if not is_dry:
                _write(using, found)
        _report(console, found, is_dry=is_dry)
        if options["check"] and not found.is_empty:
            raise CommandError("Expected schedules that are as the file says, got differences.")


def _write(using: str, found: Difference) -> None:
    Schedule.objects.using(using).bulk_create(found.added)
    for change in found.changed:
        change.schedule.save(using=using, update_fields=list(change.fields))
    Schedule.objects.using(using).filter(pk__in=[schedule.pk for schedule in found.deleted]).delete()


def _report(console: Console, found: Difference, *, is_dry: bool) -> None:
    if console.is_json:
        console.dump(_as_dict(found) | {"is_dry_run": is_dry})
        return
    lines = [f"add {shown(each.name)}: {shown(each.task)}, {texts.means(each)}" for each in found.added]
    for change in found.changed:
        lines.append(f"change {shown(change.schedule.name)}:")
        lines += [f"  {name}: {before} -> {after}" for name, before, after in _fields(change)]
    lines += [f"delete {shown(each.name)}" for each in found.deleted]
    if lines:
        console.say("\n".join(lines))
    numbers = (
        f"{len(found.added)} added, {len(found.changed)} changed, {len(found.deleted)} deleted, "
        f"{found.unchanged} unchanged"
    )
    console.say(f"Nothing was changed. It would be: {numbers}." if is_dry else console.style.SUCCESS(f"{numbers}."))
    if found.kept:
        kept = counted(found.kept, "schedule")
        console.note(f"Not in the file, and left as before: {kept}. --delete-others deletes them.")


def _fields(change: Change) -> list[tuple[str, str, str]]:
    zone = change.schedule.time_zone
    return [
        (name, quoted(written(name, change.fields[name][0], zone)), quoted(written(name, change.fields[name][1], zone)))
        for name in FIELDS
        if name in change.fields
    ]


def _as_dict(found: Difference) -> dict[str, Any]:
    return {
        "added": [schedule.name for schedule in found.added],
        "changed": {
            change.schedule.name: {
                name: [written(name, value, change.schedule.time_zone) for value in values]
                for name, values in change.fields.items()
            }
            for change in found.changed
        },
        "deleted": [schedule.name for schedule in found.deleted],
        "unchanged": found.unchanged,
        "kept": found.kept,
    }
