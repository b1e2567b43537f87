"""``schedules``: list, show, set, pause, run, export and import schedules, and the recurring tasks of the code."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import connections
from django.utils import translation

from django_graphile_worker.management.operator import formatting, schedule_rows, verb
from django_graphile_worker.management.operator.code_items import (
    CODE,
    ENABLED,
    FAILING,
    PAUSED,
    CodeItem,
    code_items,
    state_cell,
)
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Cell, Row, Value
from django_graphile_worker.management.operator.schedule_files import Export, Import, ImportCeleryBeat
from django_graphile_worker.management.operator.schedule_rows import (
    FIELDS,
    MOMENTS,
    NUMBERS,
    PERIODS,
    TIMES,
    changing,
    coming,
    database_of,
    defaults,
    find_all,
    is_of_models,
    is_same,
    no_schedule,
    parse_moment,
    refuse_from_code,
    schedules_of,
    state_of,
)
from django_graphile_worker.management.operator.verb import Options, Verb, VerbGroup, did_you_mean
from django_graphile_worker.management.worker_command import existing_file
from django_graphile_worker.models import Schedule
from django_graphile_worker.routing import place_of
from django_graphile_worker.schedules.words import parse_interval
from django_graphile_worker.sql.schedules import from_code, listing
from django_graphile_worker.sql.schedules.listing import Entry, ScheduleCriteria, ScheduleState
from django_graphile_worker.sql.schedules.runs import Run as PastRun
from django_graphile_worker.sql.schedules.runs import RunOutcome, runs_of_schedules
from django_graphile_worker.text import quoted, readable_duration, shown

DEFAULT_LIMIT, DEFAULT_RUNS = 100, 10
STATES = {
    ENABLED: ScheduleState.ACTIVE,
    PAUSED: ScheduleState.PAUSED,
    "disabled": ScheduleState.DISABLED,
    "ended": ScheduleState.ENDED,
    FAILING: ScheduleState.FAILING,
    "missed": ScheduleState.MISSED,
    "late": ScheduleState.LATE,
}


class List(Verb):
    name = "list"
    summary = "List schedules and the recurring tasks of the code: what they run, when, and their state."
    description = (
        "The recurring tasks of the code are the items of CRONTAB, of CRONTAB_FILE and of @task(cron=...), and the "
        "items that other projects have recorded in the database."
    )
    examples = ("", "--state paused", "--task send_report --search acme --json", "--crontab deploy/crontab")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--task", metavar="TASK", help="List only schedules of this task.")
        parser.add_argument("--state", choices=list(STATES), help="List only schedules in this state.")
        parser.add_argument(
            "--search", metavar="TEXT", help="List only schedules with this text in name, task or description."
        )
        parser.add_argument("--by-time", action="store_true", help="List by the next time, instead of by name.")
        parser.add_argument(
            "--crontab", type=existing_file, metavar="FILE", help="Read this crontab instead of CRONTAB_FILE."
        )
        verb.add_limit(parser, "schedules", default=DEFAULT_LIMIT)

    def run(self, console: Console, options: Options) -> None:
        now, limit = console.now(), options.get("limit") or DEFAULT_LIMIT
        entries = _entries(console, options, limit)
        listed = schedules_of(console).in_bulk([each.id for each in entries[:limit]])
        found = [(listed[each.id], each.is_failing) for each in entries[:limit] if each.id in listed]
        changes = {} if options.get("crontab") is None else {"crontab_file": options["crontab"]}
        items = [each for each in code_items(console, **changes) if _is_chosen(each, options)]
        if console.is_json:
            schedules = [schedule_rows.as_dict(each, now, is_failing=is_failing) for each, is_failing in found]
            code = [each.as_dict(now) for each in items if each.item is not None]
            others = [each.as_dict(now) for each in items if each.item is None]
            console.dump({"schedules": schedules, "code": code, "others": others})
        elif found or items:
            with console.reading() as (cursor, schema, _):
                runs = runs_of_schedules(cursor, list(listed), schema=schema, number=1)
            rows = [
                _schedule_row(console, each, runs.get(each.pk, []), now, is_failing=is_failing)
                for each, is_failing in found
            ]
            console.table(rows + [each.row(now, console.style) for each in items])
        else:
            console.note("No schedules.")
        if len(entries) > limit:
            console.note(f"There are more schedules; these are the first {limit}. Use --limit to list more.")


def _entries(console: Console, options: Options, limit: int) -> list[Entry]:
    """Return the chosen schedules, and one more than the limit if there are more."""
    if not is_of_models(console):
        return []
    text, state = options.get("search"), options.get("state")
    criteria = ScheduleCriteria(
        state=ScheduleState.ANY if state is None else STATES[state],
        words=() if text is None else (text.lower(),),
        task=options.get("task") or "",
    )
    order = "next" if options.get("by_time") else "name"
    with console.reading() as (cursor, schema, _):
        return listing.page(cursor, criteria, schema=schema, order=order, limit=limit + 1)


def _is_chosen(each: CodeItem, options: Options) -> bool:
    text, task = options.get("search"), options.get("task")
    return (
        options.get("state") in (None, each.state)
        and (text is None or text.lower() in each.name.lower())
        and (task is None or each.task == task)
    )


def _schedule_row(console: Console, schedule: Schedule, runs: list[PastRun], now: datetime, *, is_failing: bool) -> Row:
    following = next(iter(coming(schedule, now, 1)), None)
    last: Value = None
    if runs:
        word = _outcome(runs[0]) or runs[0].kind.replace("_", " ")
        paint = console.style.ERROR if runs[0].outcome is RunOutcome.FAILED else None
        last = Cell(f"{formatting.relative(runs[0].tick, now)}, {word}", paint)
    return {
        "NAME": schedule.name,
        "TASK": schedule.task,
        "WHEN": schedule_rows.means(schedule),
        "STATE": state_cell(state_of(schedule, now, is_failing=is_failing), console.style),
        "NEXT": formatting.relative(following, now),
        "LAST": last,
        "FROM": CODE if schedule.is_from_code else "database",
    }


class Show(Verb):
    name = "show"
    summary = "Show a schedule or a recurring task of the code, its next times and its last runs."
    description = (
        "The next times of a schedule are in its time zone, with the offset from UTC, so that a change to daylight "
        "saving time is seen."
    )
    examples = ("nightly-report", "nightly-report --runs 50 --json", "nightly-report --next 20 --after 2027-03-27")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="The name of the schedule.")
        parser.add_argument(
            "--runs",
            type=verb.positive,
            default=DEFAULT_RUNS,
            metavar="N",
            help=f"Show at most N runs (default: {DEFAULT_RUNS}).",
        )
        parser.add_argument(
            "--next",
            type=verb.positive,
            default=schedule_rows.NUMBER_OF_TIMES,
            metavar="N",
            help=f"Show the next N times (default: {schedule_rows.NUMBER_OF_TIMES}).",
        )
        parser.add_argument("--after", metavar="TIME", help="Show times after this time (default: now).")

    def run(self, console: Console, options: Options) -> None:
        now, name = console.now(), options["name"]
        schedule = schedules_of(console).filter(name=name).first()
        if schedule is None:
            _show_item(console, name, _after(options, "UTC", now), now, options["next"])
            return
        after = _after(options, schedule.time_zone, now)
        is_paused = state_of(schedule, now) == PAUSED
        times = coming(schedule, after, options["next"])
        with console.reading() as (cursor, schema, _):
            runs = runs_of_schedules(cursor, [schedule.pk], schema=schema, number=options["runs"])[schedule.pk]
            is_failing = bool(listing.failing_ids(cursor, [schedule.pk], schema=schema))
        if console.is_json:
            about = schedule_rows.as_dict(schedule, now, times, is_failing=is_failing)
            console.dump(about | {"runs": [_run_as_dict(run) for run in runs]})
            return
        console.say(schedule_rows.facts(schedule, now, times, console.style, is_failing=is_failing))
        if not times and not is_paused:
            console.note("It does not fire any more." if schedule.is_enabled else "It does not fire.")
        if runs:
            console.say("")
            console.table([_run_row(run, now) for run in runs])
        else:
            console.note("It has not run yet.")


def _after(options: Options, zone: str, now: datetime) -> datetime:
    if options["after"] is None:
        return now
    try:
        return parse_moment(options["after"], zone=zone, now=now)
    except ValueError as error:
        raise CommandError(f"--after: {error}") from error


def _show_item(console: Console, name: str, after: datetime, now: datetime, number: int) -> None:
    found = next((each for each in code_items(console) if each.name == name), None)
    if found is None:
        raise no_schedule(console, name)
    if console.is_json:
        console.dump(found.as_dict(after, number))
    else:
        console.say(found.facts(now, found.coming(after, number), console.style))


def _outcome(run: PastRun) -> str:
    """Return how the job of a run ended, with its error; empty for a run without a job."""
    if run.job_id is None:
        return ""
    error = (run.exception_class or "").rpartition(".")[2]
    return f"{run.outcome}: {error}" if error else str(run.outcome)


def _run_row(run: PastRun, now: datetime) -> Row:
    number = f" x {run.number}" if run.number > 1 else ""
    return {
        "TICK": formatting.both(run.tick, now),
        "KIND": f"{run.kind.replace('_', ' ')}{number}",
        "OUTCOME": _outcome(run),
        "DURATION": None if run.duration is None else readable_duration(run.duration),
        "JOB": run.job_id,
        "BY": run.run_by,
    }


def _run_as_dict(run: PastRun) -> dict[str, Any]:
    names = ("tick", "kind", "number", "outcome", "exception_class", "attempts", "job_id", "run_by")
    return {**{name: getattr(run, name) for name in names}, "duration_seconds": run.duration}


SETTABLE = [name for name in FIELDS if name != "paused_until"]


class Set(Verb):
    name = "set"
    summary = "Add a schedule, or change some of its fields."
    description = (
        f"The fields are {', '.join(SETTABLE)}. A new schedule needs task, and one of {', '.join(TIMES)}; each "
        "replaces the other two. An empty value is the default, which for options of jobs is that of the task. Times "
        "without an offset are in the time zone of the schedule. Workers obey within two seconds, without a restart."
    )
    examples = (
        "nightly-report task=send_report cron='0 4 * * *' time_zone=Europe/Berlin missed=once",
        "sync-stock task=sync_stock payload='{shop: 7}' interval='10 s' overlap=skip",
        "nightly-report payload='{format: \"pdf\"}' ends_at=2027-01-01 queue_name= --by maria",
        "nightly-report is_enabled=false",
        "launch task=send_newsletter run_at=2026-12-01T09:00 --dry-run",
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="The name of the schedule.")
        parser.add_argument("values", nargs="+", metavar="FIELD=VALUE", help="A field, and its new value.")
        verb.add_by(parser)
        parser.add_argument(
            "--dry-run", action="store_true", help="Check it and show its next times, but change nothing."
        )

    def run(self, console: Console, options: Options) -> None:
        using, now, is_dry = database_of(console), console.now(), options["dry_run"]
        before = Schedule.objects.using(using).filter(name=options["name"]).first()
        given = _fields_of(options["values"])
        if before is None and "task" not in given:
            raise CommandError(f"{no_schedule(console, options['name'])} A new schedule needs task=...")
        schedule = Schedule(name=options["name"]) if before is None else before
        refuse_from_code(schedule)
        values = _values_of(given, zone=given.get("time_zone") or schedule.time_zone, now=now)
        changes = {name: value for name, value in values.items() if not is_same(name, getattr(schedule, name), value)}
        for name, value in changes.items():
            setattr(schedule, name, value)
        if before is not None and changes == {"is_enabled": False}:
            # Without the checks of save(): a definition that is not valid can be disabled.
            rows = Schedule.objects.using(using).filter(pk=schedule.pk)
            _save(using, options, lambda: rows.update(is_enabled=False))
        else:
            schedule_rows.refuse_errors(schedule_rows.errors_in(schedule))
            fields = {} if before is None else {"update_fields": list(changes)}
            if changes or before is None:
                _save(using, options, lambda: schedule.save(using=using, **fields))
        if not is_dry:
            schedule.refresh_from_db()
        words = ("Would add", "Added") if before is None else ("Would change", "Changed")
        if console.is_json:
            console.dump(schedule_rows.as_dict(schedule, now))
            return
        if changes or before is None:
            console.done(f"{words[0] if is_dry else words[1]} {schedule_rows.sentence(schedule, now)}.")
        else:
            console.note(f"{shown(schedule.name)} has these values already.")
        for moment in coming(schedule, now) if is_dry else ():
            console.say(f"  {schedule_rows.in_its_zone(moment, schedule)}")


def _save(using: str, options: Options, save: Callable[[], object]) -> None:
    if not options["dry_run"]:
        with changing(using, options):
            save()


def _fields_of(values: Sequence[str]) -> dict[str, str]:
    """Return the texts of the fields."""
    given = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or name not in SETTABLE:
            hint = did_you_mean(name, SETTABLE)
            raise CommandError(f"Expected FIELD=VALUE with one of {', '.join(SETTABLE)}, got {quoted(value)}.{hint}")
        given[name] = text
    times = [name for name in TIMES if given.get(name)]
    if len(times) > 1:
        raise CommandError(f"A schedule has only one of {', '.join(TIMES)}, got {' and '.join(times)}.")
    return given


def _values_of(given: dict[str, str], *, zone: str, now: datetime) -> dict[str, Any]:
    """Return the values of the fields, and of those that depend on them."""
    readers: dict[str, Callable[[str], Any]] = {
        "payload": verb.payload_from,
        "is_enabled": _boolean,
        **dict.fromkeys(NUMBERS, verb.whole_number),
        **dict.fromkeys(PERIODS, parse_interval),
        **dict.fromkeys(MOMENTS, lambda text: parse_moment(text, zone=zone, now=now)),
    }
    usual, values = defaults(), {}
    for name, text in given.items():
        try:
            values[name] = readers.get(name, str)(text) if text or name not in usual else usual[name]
        except ValueError as error:
            raise CommandError(f"{name}: {error}") from error
    if any(given.get(name) for name in TIMES):
        values = dict.fromkeys(TIMES) | values
    if given.get("missed_within") and "missed" not in given:
        values["missed"] = Schedule.Missed.ALL.value
    elif "missed" in given and given["missed"] != Schedule.Missed.ALL and "missed_within" not in given:
        values["missed_within"] = None
    return values


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"expected true or false, got {quoted(text)}")
    return text == "true"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Switch(Verb):
    """A verb that changes each of some schedules, or none of them."""

    name: str
    summary: str
    description: str = ""
    examples: Sequence[str] = ("nightly-report", "nightly-report sync-stock")
    # Changes a schedule and returns what happened; None if there was nothing to change.
    change: Callable[[Schedule, Options, datetime], str | None]
    # The same for a recurring task of the code; None if the verb does not apply to it.
    change_item: Callable[..., bool] | None = None
    # What was done to a recurring task of the code, and what is said if there was nothing to change.
    item_text: str = ""
    already: str = ""
    has_until: bool = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", nargs="+", metavar="NAME", help="The names of schedules.")
        verb.add_by(parser)
        if self.has_until:
            until = "End the pause then: +2h, or 2026-05-01T12:00 in the time zone of the schedule."
            parser.add_argument("--until", metavar="TIME", help=until)

    def run(self, console: Console, options: Options) -> None:
        using, now, names = place_of(**console.place).using, console.now(), list(dict.fromkeys(options["names"]))
        rows = {each.name: each for each in schedules_of(console).filter(name__in=names)}
        items = self._items(console, [name for name in names if name not in rows], options)
        with changing(using, options):
            said = {
                name: self._change_item(using, console, name)
                if name in items
                else self.change(rows[name], options, now)
                for name in names
            }
        if console.is_json:
            console.dump([{"name": name, "was_changed": text is not None} for name, text in said.items()])
            return
        for name, text in said.items():
            if text is None:
                console.note(f"{shown(name)} {self.already}.")
            else:
                console.done(f"{shown(name)} {text}.")

    def _items(self, console: Console, names: Sequence[str], options: Options) -> set[str]:
        """Return the names of recurring tasks of the code that can be changed; raise CommandError for others."""
        found = {each.name: each for each in code_items(console)} if names else {}
        for name in names:
            if self.change_item is None or name not in found:
                raise no_schedule(console, name)
            if found[name].known is None:
                raise CommandError(f"{quoted(name)} is in no worker yet: start a worker with it first.")
            if options.get("until") is not None:
                raise CommandError(f"--until: {quoted(name)} is a recurring task of the code: resume it yourself.")
        return set(names)

    def _change_item(self, using: str, console: Console, name: str) -> str | None:
        assert self.change_item is not None
        with connections[using].cursor() as cursor:
            return self.item_text if self.change_item(cursor, name, schema=console.settings.schema) else None


def _pause(schedule: Schedule, options: Options, now: datetime) -> str:
    if options["until"] is None:
        schedule.pause(by=verb.name_of_user(options))
        return "is paused until it is resumed"
    try:
        until = parse_moment(options["until"], zone=schedule.time_zone, now=now)
    except ValueError as error:
        raise CommandError(f"--until: {error}") from error
    if until <= formatting.aware(now):
        raise CommandError(f"--until: expected a time in the future, got {formatting.both(until, now)}.")
    schedule.pause(until=until, by=verb.name_of_user(options))
    return f"is paused until {formatting.both(until, now)}"


def _resume(schedule: Schedule, options: Options, now: datetime) -> str | None:
    if schedule.paused_until is None:
        return None
    schedule.resume(by=verb.name_of_user(options))
    return "is resumed from now on"


def _delete(schedule: Schedule, options: Options, now: datetime) -> str:
    if schedule.is_in_code:
        refuse_from_code(schedule)
    schedule.delete()
    return "is deleted"


SWITCHES = (
    Switch(
        name="pause",
        summary="Do not fire schedules or recurring tasks of the code until they are resumed, or until a time.",
        description="The times that a schedule misses while it is paused are not made up for, whatever its policy. A "
        "recurring task of the code is paused for all workers, also for those of Node.js.",
        examples=("nightly-report", "sync-stock sync-prices --until +2h"),
        change=_pause,
        change_item=from_code.pause,
        item_text="is paused until it is resumed",
        already="was paused already",
        has_until=True,
    ),
    Switch(
        name="resume",
        summary="Fire paused schedules again, from now on.",
        change=_resume,
        change_item=from_code.resume,
        item_text="is resumed from now on",
        already="was not paused",
    ),
    Switch(
        name="delete",
        summary="Delete schedules. Nothing fires after that; jobs that were added stay.",
        change=_delete,
    ),
)


class Run(Verb):
    name = "run"
    summary = "Add a job for a schedule now, beside its times."
    description = "It works for a disabled or paused schedule, too, and does not change its next time."
    examples = ("nightly-report", "nightly-report --by maria --json")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="The name of the schedule.")
        verb.add_by(parser)

    def run(self, console: Console, options: Options) -> None:
        (schedule,) = find_all(console, [options["name"]])
        with changing(database_of(console), options):
            job_id: Any = schedule.run_now(by=verb.name_of_user(options))
        if console.is_json:
            console.dump({"name": schedule.name, "task": schedule.task, "job_id": job_id})
        else:
            console.done(f"Added {shown(schedule.task)} #{job_id} for {shown(schedule.name)}.")


class Schedules(VerbGroup):
    name = "schedules"
    summary = "List, set, pause, run, export and import schedules; without a verb, list them."
    description = "A schedule is a row of the database that says when a task runs. Its own verbs have a --help each."
    examples = ("", "set nightly-report task=send_report cron='0 4 * * *'", "export > schedules.json")
    verbs = (List(), Show(), Set(), *SWITCHES, Run(), Export(), Import(), ImportCeleryBeat())

    def run(self, console: Console, options: Options) -> None:
        # The texts of the command line are English, those of the model are translated.
        with translation.override(None):
            super().run(console, options)
