"""``schedules export``, ``import`` and ``import-celery-beat``: many schedules at once, from files and other tables.

A file is JSON that people read and keep under version control. An entry has the fields of the model under their names.
A field with its default value is left out, periods are written like ``1h30m``, and times in the time zone of the
schedule.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS

from django_graphile_worker import conf
from django_graphile_worker.celery_beat.importer import Choices, Imported, import_rows, read_rows
from django_graphile_worker.celery_beat.translation import read_table
from django_graphile_worker.management.arguments import Argument, iso_time
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import aware, counted
from django_graphile_worker.management.operator.schedule_rows import (
    FIELDS,
    NEVER,
    PERIODS,
    changing,
    database_of,
    find_all,
    means,
    zone_or_utc,
)
from django_graphile_worker.management.operator.verb import BY, Options, Verb
from django_graphile_worker.models import Schedule
from django_graphile_worker.routing import place_of
from django_graphile_worker.schedules.times import Definition
from django_graphile_worker.schedules.words import in_words, interval_text, parse_interval
from django_graphile_worker.text import quoted, shown

KEY = "schedules"
REQUIRED = ("name", "task")
MOMENTS = ("run_at", "starts_at", "ends_at", "paused_until")
# paused_until of a pause without an end: "paused until resumed".
RESUMED = "resumed"


def _defaults() -> dict[str, Any]:
    """Return the values of the fields that an entry may leave out."""
    usual = Schedule()
    return {name: getattr(usual, name) for name in FIELDS if name not in REQUIRED}


class Export(Verb):
    name = "export"
    summary = "Write schedules as JSON, for 'schedules import'."
    description = (
        "The file has the schedules by name, and of each only what differs from the defaults: the same schedules give "
        "the same file. What workers have recorded, such as the last time, is not in it, and neither are the schedules "
        "of @task(every=...)."
    )
    examples = ("> schedules.json", "nightly-report sync-stock")
    arguments = (Argument("names", "NAME", "Write only these schedules (default: all).", nargs="*"),)

    def run(self, console: Console, options: Options) -> None:
        using, names = database_of(console), options["names"]
        found: Iterable[Schedule] = Schedule.objects.using(using).filter(is_from_code=False)
        if names:
            found = find_all(console, names)
        usual = _defaults()
        entries = [
            {
                name: _written(name, getattr(each, name), each.time_zone)
                for name in FIELDS
                if name in REQUIRED or getattr(each, name) != usual[name]
            }
            for each in sorted(found, key=lambda each: each.name)
        ]
        console.say(json.dumps({KEY: entries}, indent=2, ensure_ascii=False))


def _written(name: str, value: Any, zone: str) -> Any:
    """Return the value of a field as an entry has it."""
    if value is None:
        return None
    if name in PERIODS:
        return interval_text(value)
    if name in MOMENTS:
        moment = aware(value)
        if name == "paused_until" and moment >= NEVER:
            return RESUMED
        try:
            return moment.astimezone(zone_or_utc(zone)).isoformat()
        except OverflowError:
            return moment.astimezone(UTC).isoformat()
    return str(value) if name in ("missed", "overlap") else value


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
    arguments = (
        Argument("file", "FILE", "The file; - reads standard input."),
        Argument("--dry-run", "", "Show what would change, and change nothing."),
        Argument("--check", "", "As --dry-run; exit with 1 if anything would change."),
        Argument("--delete-others", "", "Delete schedules that are not in the file."),
        BY,
    )

    def run(self, console: Console, options: Options) -> None:
        using, entries = database_of(console), _read_file(options["file"])
        is_dry = options["dry_run"] or options["check"]
        with changing(using, options):
            rows = Schedule.objects.using(using).order_by("pk")
            if not is_dry:
                # No other change may come between. Workers pass over locked rows, and fire them afterwards.
                rows = rows.select_for_update()
            present = {schedule.name: schedule for schedule in rows}
            found = _difference(entries, present, deletes_others=options["delete_others"])
            if not is_dry:
                Schedule.objects.using(using).bulk_create(found.added)
                for schedule, fields in found.changed:
                    schedule.save(using=using, update_fields=list(fields))
                Schedule.objects.using(using).filter(pk__in=[each.pk for each in found.deleted]).delete()
        if console.is_json:
            console.dump(found.as_dict() | {"is_dry_run": is_dry})
        else:
            _report(console, found, is_dry=is_dry)
        if options["check"] and (found.added or found.changed or found.deleted):
            raise CommandError("The schedules differ from the file.")


def _read_file(path: str) -> list[Any]:
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
    return entries


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {quoted(name)} twice in one object")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name}, which is not JSON")


@dataclass(slots=True)
class Difference:
    """What an import changes."""

    added: list[Schedule] = field(default_factory=list)
    # Schedules with their new values, and the fields that differ: before and after, as entries have them.
    changed: list[tuple[Schedule, dict[str, tuple[Any, Any]]]] = field(default_factory=list)
    deleted: list[Schedule] = field(default_factory=list)
    unchanged: int = 0
    # Schedules that the file does not have, and that stay.
    kept: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "added": [schedule.name for schedule in self.added],
            "changed": {schedule.name: fields for schedule, fields in self.changed},
            "deleted": [schedule.name for schedule in self.deleted],
            "unchanged": self.unchanged,
            "kept": self.kept,
        }


def _difference(entries: Sequence[Any], present: Mapping[str, Schedule], *, deletes_others: bool) -> Difference:
    """Return what an import of the entries changes; raise CommandError with every error in them."""
    found, lines, named = Difference(), [], set()
    for number, entry in enumerate(entries, 1):
        name = entry.get("name") if isinstance(entry, dict) else None
        label = f"schedule {quoted(name)}" if name else f"schedule number {number}"
        if not isinstance(entry, dict):
            errors = {"": [f"expected an object with the fields of a schedule, got {quoted(entry)}."]}
        elif isinstance(name, str) and name in named:
            errors = {"": ["the file has several entries with this name."]}
        else:
            errors = _compare(found, entry, present)
        if isinstance(name, str):
            named.add(name)
        lines += [
            f"{label}: {field}: {text}" if field in FIELDS else f"{label}: {text}"
            for field, texts in errors.items()
            for text in texts
        ]
    if lines:
        errors_in_lines = "\n".join(shown(line) for line in lines)
        raise CommandError(f"Nothing was imported. Correct these errors:\n{errors_in_lines}")
    others = [each for name, each in sorted(present.items()) if name not in named and not each.is_from_code]
    found.deleted, found.kept = (others, 0) if deletes_others else ([], len(others))
    return found


def _compare(found: Difference, entry: dict[str, Any], present: Mapping[str, Schedule]) -> dict[str, list[str]]:
    """Add an entry to the difference; return its errors by field."""
    values, errors = _read(entry)
    before = present.get(values.get("name", ""))
    if before is not None and before.is_from_code:
        way_out = "change it there. Here it can be paused, resumed and run."
        return {"": [f"{quoted(before.name)} is @task(every=...) in the code: {way_out}"]}
    wanted = _defaults() | values
    if before is not None and "paused_until" not in values:
        # A file that does not mention the pause does not end it.
        wanted["paused_until"] = before.paused_until
    schedule = Schedule() if before is None else before
    changes = {}
    for name in FIELDS:
        old, new = getattr(schedule, name), wanted.get(name)
        if name in wanted and not _is_same(name, old, new):
            changes[name] = (old, new)
            setattr(schedule, name, new)
    if before is not None and not changes and not errors:
        found.unchanged += 1
        return {}
    try:
        schedule.validate_definition()
    except ValidationError as error:
        errors = {name: [str(text) for text in texts] for name, texts in error.message_dict.items()} | errors
    if errors:
        return errors
    if before is None:
        found.added.append(schedule)
    else:
        zone = schedule.time_zone
        written = {name: (_written(name, old, zone), _written(name, new, zone)) for name, (old, new) in changes.items()}
        found.changed.append((schedule, written))
    return {}


def _is_same(name: str, one: Any, other: Any) -> bool:
    """Return whether two values of a field are the same; Python takes True for 1, JSON does not."""
    if name == "payload":
        return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    if name in MOMENTS and one is not None and other is not None:
        return aware(one) == aware(other)
    return bool(one == other)


def _read(entry: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return the values of an entry, and its errors that the model would not find."""
    values, errors = {}, {name: ["a value is required."] for name in REQUIRED if name not in entry}
    zone = entry.get("time_zone", "UTC")
    for name, value in entry.items():
        try:
            values[name] = _value(name, value, zone)
        except ValueError as error:
            errors[name] = [str(error)]
    return values, errors


def _value(name: str, value: Any, zone: Any) -> Any:
    if name not in FIELDS:
        raise ValueError(f"expected a field of a schedule ({', '.join(FIELDS)}), got {quoted(name)}.")
    if name in REQUIRED and not isinstance(value, str):
        raise ValueError(f"expected a text, got {quoted(value)}.")
    if name == "is_enabled" and not isinstance(value, bool):
        raise ValueError(f"expected true or false, got {quoted(value)}.")
    if name in PERIODS and isinstance(value, str):
        return parse_interval(value)
    if name in MOMENTS and isinstance(value, str):
        moment = Schedule.FOREVER if name == "paused_until" and value == RESUMED else None
        moment = moment or iso_time(value, zone_or_utc(zone))
        if moment is None:
            raise ValueError(f"expected a time like 2026-05-01T12:00 or 2026-05-01T12:00+02:00, got {quoted(value)}")
        return moment
    return value


def _report(console: Console, found: Difference, *, is_dry: bool) -> None:
    lines = [f"add {each.name}: {each.task}, {means(each)}" for each in found.added]
    for schedule, fields in found.changed:
        lines.append(f"change {schedule.name}:")
        lines += [f"  {name}: {quoted(before)} -> {quoted(after)}" for name, (before, after) in fields.items()]
    lines += [f"delete {each.name}" for each in found.deleted]
    for line in lines:
        console.say(shown(line))
    numbers = (
        f"{len(found.added)} added, {len(found.changed)} changed, {len(found.deleted)} deleted, "
        f"{found.unchanged} unchanged"
    )
    if is_dry:
        console.say(f"Nothing was changed. It would be: {numbers}.")
    else:
        console.done(f"{numbers}.")
    if found.kept:
        kept = counted(found.kept, "schedule")
        console.note(f"Not in the file, and left as before: {kept}. --delete-others deletes them.")


# In the order of the report; what could not be imported comes last, where it is seen.
OUTCOMES = ("created", "updated", "unchanged", "kept", "left out")
MISSED: Any = {"choices": ("skip", "once"), "default": "once"}


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
    arguments = (
        Argument(
            "--tasks",
            "NAME=NAME|FILE",
            "The task of this project that replaces a task of Celery, or a JSON file with many. Repeatable.",
            action="append",
            default=[],
        ),
        Argument("--from", "DATABASE", "The alias of the database of django-celery-beat.", default=DEFAULT_DB_ALIAS),
        Argument("--missed", "", "What becomes of times without a worker (default: once, as in beat).", **MISSED),
        Argument("--catch-up", "", "Treat times since the last run of beat as missed."),
        Argument("--overwrite", "", "Replace schedules that a person has changed."),
        Argument("--dry-run", "", "Change nothing, and say what would be done."),
    )

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
        rows = read_rows(options["from"])
        with console.reading() as reading:
            now = reading.now
        found = import_rows(rows, choices, now=now, using=place.using)
        if console.is_json:
            console.dump([_imported_as_dict(each) for each in found])
            return
        for each in sorted(found, key=lambda each: OUTCOMES.index(each.outcome)):
            console.say(_line_of(console, each))
        counts = Counter(each.outcome for each in found)
        numbers = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
        console.say(f"\n{numbers or 'django-celery-beat has no periodic tasks'}.")
        if choices.is_dry_run:
            console.note("Nothing was changed, because of --dry-run.")


def _line_of(console: Console, each: Imported) -> str:
    style = {"left out": console.style.ERROR, "kept": console.style.WARNING}.get(each.outcome, console.style.SUCCESS)
    text = each.name
    if each.outcome in {"created", "updated"} and each.values is not None:
        text += f": {each.values['task']}, {_when(each.values)}{'' if each.values['is_enabled'] else ', disabled'}"
    if each.reason:
        text += f" ({each.reason})" if each.outcome == "updated" else f": {each.reason}"
    notes = [f"\n             {shown(note)}" for note in each.notes]
    return "".join([f"{style(each.outcome):<9}  {shown(text)}", *notes])


def _when(values: Mapping[str, Any]) -> str:
    names = ("cron", "interval", "run_at", "time_zone", "starts_at", "ends_at")
    words = in_words(Definition(**{name: values[name] for name in names}))
    return words[0].lower() + words[1:]


def _imported_as_dict(each: Imported) -> dict[str, Any]:
    values = None if each.values is None else dict(each.values)
    if values is not None and values["interval"] is not None:
        values["interval"] = values["interval"].total_seconds()
    return {
        "name": each.name,
        "outcome": each.outcome,
        "reason": each.reason,
        "notes": list(each.notes),
        "schedule": values,
    }
