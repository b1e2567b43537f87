"""``import_celery_beat``: create schedules from the tables of django-celery-beat."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS

from django_graphile_worker import conf
from django_graphile_worker.celery_beat.importer import Choices, Imported, import_rows, read_rows
from django_graphile_worker.celery_beat.translation import read_table
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.routing import place_of
from django_graphile_worker.schedules.times import Definition
from django_graphile_worker.schedules.words import in_words
from django_graphile_worker.text import shown

# In the order of the report; what could not be imported comes last, where it is seen.
OUTCOMES = ("created", "updated", "unchanged", "kept", "left out")


class ImportCeleryBeat(Verb):
    name = "import_celery_beat"
    summary = "Create schedules from the tables of django-celery-beat."
    description = (
        "Read the periodic tasks of django-celery-beat, whose package need not be installed any more, and create a "
        "schedule for each, with the same name. Tasks are found by their names, or by the table --tasks. Say what was "
        "done, what was left out, and why. A second run updates what the first has created, except for schedules that "
        "a person has changed since."
    )
    examples = (
        "--dry-run",
        "--tasks proj.tasks.send=send_mail --tasks proj.tasks.report=report",
        "--tasks tasks.json --catch-up",
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--tasks",
            action="append",
            default=[],
            metavar="NAME=NAME|FILE",
            help="The task of this project that replaces a task of Celery, or a JSON file with many. Repeatable.",
        )
        parser.add_argument(
            "--from",
            dest="source",
            default=DEFAULT_DB_ALIAS,
            metavar="DATABASE",
            help="The alias of the database with the tables of django-celery-beat (default: default).",
        )
        parser.add_argument(
            "--missed",
            choices=("skip", "once"),
            default="once",
            help="What happens to times at which no worker runs (default: once, as in beat).",
        )
        parser.add_argument(
            "--catch-up",
            action="store_true",
            help="Treat times since the last run of beat as missed, instead of counting from now on.",
        )
        parser.add_argument("--overwrite", action="store_true", help="Replace schedules that a person has changed.")
        parser.add_argument("--dry-run", action="store_true", help="Change nothing, and say what would be done.")

    def run(self, console: Console, options: Options) -> None:
        place = place_of(**console.place)
        if place.installation != conf.DEFAULT:
            raise CommandError(f"--installation: expected {conf.DEFAULT!r}, got {place.installation!r}.")
        choices = Choices(
            tasks=read_table(options["tasks"]),
            missed=options["missed"],
            catches_up=options["catch_up"],
            overwrites=options["overwrite"],
            is_dry_run=options["dry_run"],
        )
        rows = read_rows(options["source"])
        with console.reading() as reading:
            now = reading.now
        found = import_rows(rows, choices, now=now, using=place.using)
        if console.is_json:
            console.dump([_as_dict(each) for each in found])
        else:
            self._report(console, found, is_dry_run=choices.is_dry_run)

    def _report(self, console: Console, found: list[Imported], *, is_dry_run: bool) -> None:
        for outcome in OUTCOMES:
            for each in found:
                if each.outcome == outcome:
                    console.say(_line(console, each))
        counts = Counter(each.outcome for each in found)
        numbers = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
        console.say(f"\n{numbers or 'django-celery-beat has no periodic tasks'}.")
        if is_dry_run:
            console.note("Nothing was changed, because of --dry-run.")


def _line(console: Console, each: Imported) -> str:
    style = {"left out": console.style.ERROR, "kept": console.style.WARNING}.get(each.outcome, console.style.SUCCESS)
    parts = [f"{style(each.outcome):<9}  {shown(each.name)}"]
    if each.outcome in {"created", "updated"} and each.values is not None:
        parts.append(f": {shown(each.values['task'])}, {_when(each)}")
        parts.append("" if each.values["is_enabled"] else ", disabled")
    if each.reason:
        parts.append(f" ({shown(each.reason)})" if each.outcome == "updated" else f": {shown(each.reason)}")
    notes = [f"\n             {shown(note)}" for note in each.notes]
    return "".join(parts + notes)


def _when(each: Imported) -> str:
    assert each.values is not None
    names = ("cron", "interval", "run_at", "time_zone", "starts_at", "ends_at")
    words = in_words(Definition(**{name: each.values[name] for name in names}))
    return words[0].lower() + words[1:]


def _as_dict(each: Imported) -> dict[str, Any]:
    values = None if each.values is None else {**each.values, "interval": _seconds(each.values["interval"])}
    return {
        "name": each.name,
        "outcome": each.outcome,
        "reason": each.reason,
        "notes": list(each.notes),
        "schedule": values,
    }


def _seconds(interval: Any) -> float | None:
    return None if interval is None else interval.total_seconds()
