"""``schedules export``, ``import`` and ``import-celery-beat``: many schedules at once, from files and other tables.

A file is JSON that people read and keep under version control. An entry has the fields of the model under their names.
A field with its default value is left out, periods are written like ``1h30m``, and times in the time zone of the
schedule.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS

from django_graphile_worker import conf
from django_graphile_worker.celery_beat.importer import Choices, Imported, import_rows, read_rows
from django_graphile_worker.celery_beat.translation import read_table
from django_graphile_worker.management.operator import formatting, verb
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted
from django_graphile_worker.management.operator.schedule_rows import (
    FIELDS,
    MOMENTS,
    NEVER,
    NUMBERS,
    PERIODS,
    REQUIRED,
    changing,
    database_of,
    defaults,
    errors_in,
    find_all,
    in_code,
    is_same,
    means,
    zone_or_utc,
)
from django_graphile_worker.management.operator.verb import Options, Verb, did_you_mean
from django_graphile_worker.models import Schedule
from django_graphile_worker.routing import place_of
from django_graphile_worker.schedules.times import Definition
from django_graphile_worker.schedules.words import in_words, interval_text, parse_interval
from django_graphile_worker.text import quoted, shown

# paused_until of a pause without an end: "paused until resumed".
RESUMED = "resumed"


@dataclass(frozen=True, slots=True)
class Entry:
    """The fields of one entry. A field that the entry does not have has its default, but a pause is left as it is."""

    name: str
    values: dict[str, Any]
    errors: dict[str, list[str]]


def entry_of(schedule: Schedule) -> dict[str, Any]:
    """Return the entry of a schedule."""
    usual = defaults()
    return {
        name: written(name, getattr(schedule, name), schedule.time_zone)
        for name in FIELDS
        if name in REQUIRED or getattr(schedule, name) != usual[name]
    }


def written(name: str, value: Any, zone: str) -> Any:
    """Return the value of a field as an entry has it."""
    if value is None:
        return None
    if name in PERIODS:
        return interval_text(value)
    if name == "paused_until" and formatting.aware(value) >= NEVER:
        return RESUMED
    if name in MOMENTS:
        return _iso(value, zone)
    return str(value) if name in ("missed", "overlap") else value


def _iso(moment: datetime, zone: str) -> str:
    """Return a time for a file that people read: in the zone of its schedule."""
    aware = formatting.aware(moment)
    try:
        return aware.astimezone(zone_or_utc(zone)).isoformat()
    except OverflowError:
        return aware.astimezone(UTC).isoformat()


def _moment(text: str, zone: str) -> datetime:
    moment = verb.parse_iso(text, zone_or_utc(zone))
    if moment is None:
        raise ValueError(f"expected a time like 2026-05-01T12:00 or 2026-05-01T12:00+02:00, got {quoted(text)}")
    return moment


def read_entry(value: Any, place: str) -> Entry:
    """Return the fields of an entry, with every error in its types; ``place`` names an entry without a name."""
    if not isinstance(value, Mapping):
        return Entry(place, {}, {"": [f"expected an object with the fields of a schedule, got {quoted(value)}."]})
    errors: dict[str, list[str]] = {}
    for name in value:
        if name not in FIELDS:
            hint = did_you_mean(name, FIELDS)
            errors[name] = [f"expected a field of a schedule ({', '.join(FIELDS)}), got {quoted(name)}.{hint}"]
    zone = value.get("time_zone", "UTC")
    values = {}
    for name in FIELDS:
        if name not in value:
            if name in REQUIRED:
                errors[name] = ["a value is required."]
            continue
        try:
            values[name] = _read_field(name, value[name], zone if isinstance(zone, str) else "UTC")
        except ValueError as error:
            errors[name] = [str(error)]
    name = values.get("name")
    return Entry(f"schedule {quoted(name)}" if name else place, values, errors)


def _read_field(name: str, value: Any, zone: str) -> Any:
    if value is None and defaults().get(name, "") is None:
        return None
    expected, is_right = _TYPES.get(name, _TEXT)
    if not is_right(value):
        raise ValueError(f"expected {expected}, got {quoted(value)}.")
    if name in PERIODS:
        return parse_interval(value)
    if name == "paused_until" and value == RESUMED:
        return Schedule.FOREVER
    return _moment(value, zone) if name in MOMENTS else value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_Type = tuple[str, Callable[[Any], bool]]
_TEXT: _Type = ("a text", _is_text)
_TYPES: dict[str, _Type] = {
    "payload": ("an object", lambda value: isinstance(value, dict)),
    "is_enabled": ("true or false", lambda value: isinstance(value, bool)),
    **dict.fromkeys(NUMBERS, ("a whole number", _is_number)),
    **dict.fromkeys(PERIODS, ("a period like '10s' or '1h30m'", _is_text)),
    **dict.fromkeys(MOMENTS, ("a time like '2026-05-01T12:00'", _is_text)),
}


KEY = "schedules"


def text_of(schedules: Iterable[Schedule]) -> str:
    """Return the file of these schedules. The same schedules give the same text."""
    entries = [entry_of(schedule) for schedule in sorted(schedules, key=lambda each: each.name)]
    return json.dumps({KEY: entries}, indent=2, ensure_ascii=False)


def read_file(path: str) -> list[Entry]:
    """Return the entries of a file, or of standard input for ``-``; raise CommandError if it is no such file."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        content = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except OSError as error:
        raise CommandError(f"{path!r} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} is not JSON as graphile_worker schedules export writes it: {error}.") from error
    entries = content.get(KEY) if isinstance(content, dict) else None
    if not isinstance(entries, list) or len(content) != 1:
        raise CommandError(
            f'{path}: expected {{"{KEY}": [...]}}, as graphile_worker schedules export writes it, '
            f"got {quoted(content)}."
        )
    return [read_entry(entry, f"schedule number {number}") for number, entry in enumerate(entries, 1)]


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {quoted(twice)} twice in one object")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name}, which is not JSON")


@dataclass(frozen=True, slots=True)
class Change:
    """A schedule with its new values, and the fields that differ: before and after."""

    schedule: Schedule
    fields: dict[str, tuple[Any, Any]]


@dataclass(slots=True)
class Difference:
    """What an import changes."""

    added: list[Schedule] = field(default_factory=list)
    changed: list[Change] = field(default_factory=list)
    deleted: list[Schedule] = field(default_factory=list)
    unchanged: int = 0
    # Schedules that the file does not have, and that stay.
    kept: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.changed or self.deleted)


def difference(entries: Sequence[Entry], present: Mapping[str, Schedule], *, deletes_others: bool) -> Difference:
    """Return what an import of the entries changes; raise CommandError with every error in them."""
    found, errors = Difference(), []
    named: set[str] = set()
    for entry in entries:
        errors += [_error_line(entry, name, text) for name, texts in entry.errors.items() for text in texts]
        name = entry.values.get("name")
        if name is not None and name in named:
            errors.append(f"{entry.name}: the file has several entries with this name.")
        elif name is not None:
            named.add(name)
            errors += _compare(found, entry, present.get(name))
    if errors:
        lines = "\n".join(shown(error) for error in errors)
        raise CommandError(f"Nothing was imported. Correct these errors:\n{lines}")
    others = [each for name, each in sorted(present.items()) if name not in named and not each.is_from_code]
    found.deleted, found.kept = (others, 0) if deletes_others else ([], len(others))
    return found


def _compare(found: Difference, entry: Entry, before: Schedule | None) -> list[str]:
    """Add an entry to the difference, and return its errors."""
    if before is not None and before.is_from_code:
        return [in_code(before)]
    wanted = defaults() | entry.values
    if before is not None and "paused_until" not in entry.values:
        # A file that does not mention the pause does not end it.
        wanted["paused_until"] = before.paused_until
    schedule = Schedule() if before is None else before
    changes = {
        name: (getattr(schedule, name), wanted[name])
        for name in FIELDS
        if name in wanted and not is_same(name, getattr(schedule, name), wanted[name])
    }
    if before is not None and not changes and not entry.errors:
        found.unchanged += 1
        return []
    for name, (_, value) in changes.items():
        setattr(schedule, name, value)
    if before is None:
        found.added.append(schedule)
    else:
        found.changed.append(Change(schedule, changes))
    checked = {name: texts for name, texts in errors_in(schedule).items() if name not in entry.errors}
    return [_error_line(entry, name, text) for name, texts in checked.items() for text in texts]


def _error_line(entry: Entry, name: str, text: str) -> str:
    return f"{entry.name}: {name}: {text}" if name in FIELDS else f"{entry.name}: {text}"


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
        console.say(text_of(found))


class Import(Verb):
    name = "import"
    summary = "Add and change schedules so that they are as a file says."
    description = (
        "The file is one of 'schedules export', or written by hand. Either all of it is imported or, if it has "
        "errors, nothing: each error is named. A field that the file leaves out gets its default; only a pause is "
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
        verb.add_by(parser)

    def run(self, console: Console, options: Options) -> None:
        using, entries = database_of(console), read_file(options["file"])
        is_dry = options["dry_run"] or options["check"]
        with changing(using, options):
            rows = Schedule.objects.using(using).order_by("pk")
            if not is_dry:
                # No other change may come between. Workers pass over locked rows, and fire them afterwards.
                rows = rows.select_for_update()
            found = difference(
                entries, {schedule.name: schedule for schedule in rows}, deletes_others=options["delete_others"]
            )
            if not is_dry:
                _write(using, found)
        _report_import(console, found, is_dry=is_dry)
        if options["check"] and not found.is_empty:
            raise CommandError("The schedules differ from the file.")


def _write(using: str, found: Difference) -> None:
    Schedule.objects.using(using).bulk_create(found.added)
    for change in found.changed:
        change.schedule.save(using=using, update_fields=list(change.fields))
    Schedule.objects.using(using).filter(pk__in=[schedule.pk for schedule in found.deleted]).delete()


def _report_import(console: Console, found: Difference, *, is_dry: bool) -> None:
    if console.is_json:
        console.dump(_difference_as_dict(found) | {"is_dry_run": is_dry})
        return
    lines = [f"add {shown(each.name)}: {shown(each.task)}, {means(each)}" for each in found.added]
    for change in found.changed:
        lines.append(f"change {shown(change.schedule.name)}:")
        lines += [f"  {name}: {before} -> {after}" for name, before, after in _changed_fields(change)]
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


def _changed_fields(change: Change) -> list[tuple[str, str, str]]:
    zone = change.schedule.time_zone
    return [
        (name, quoted(written(name, change.fields[name][0], zone)), quoted(written(name, change.fields[name][1], zone)))
        for name in FIELDS
        if name in change.fields
    ]


def _difference_as_dict(found: Difference) -> dict[str, Any]:
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


# In the order of the report; what could not be imported comes last, where it is seen.
OUTCOMES = ("created", "updated", "unchanged", "kept", "left out")


class ImportCeleryBeat(Verb):
    name = "import-celery-beat"
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
            console.dump([_imported_as_dict(each) for each in found])
        else:
            self._report(console, found, is_dry_run=choices.is_dry_run)

    def _report(self, console: Console, found: list[Imported], *, is_dry_run: bool) -> None:
        for outcome in OUTCOMES:
            for each in found:
                if each.outcome == outcome:
                    console.say(_line_of(console, each))
        counts = Counter(each.outcome for each in found)
        numbers = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
        console.say(f"\n{numbers or 'django-celery-beat has no periodic tasks'}.")
        if is_dry_run:
            console.note("Nothing was changed, because of --dry-run.")


def _line_of(console: Console, each: Imported) -> str:
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


def _imported_as_dict(each: Imported) -> dict[str, Any]:
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
