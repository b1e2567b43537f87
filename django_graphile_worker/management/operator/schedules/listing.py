"""``schedules list``, ``show`` and ``next``: what schedules there are, and when they fire."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db.models import Q, QuerySet

from django_graphile_worker.crontab import CronItem, describe, upcoming
from django_graphile_worker.management.operator import arguments, formatting
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Cell, Column
from django_graphile_worker.management.operator.schedules import texts
from django_graphile_worker.management.operator.schedules.found import add_names, code_items, database_of, find
from django_graphile_worker.management.operator.schedules.texts import parse_moment
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.models import Schedule
from django_graphile_worker.sql.schedules import from_code, listing
from django_graphile_worker.sql.schedules.listing import ScheduleCriteria, ScheduleState, failing_ids, matching_ids
from django_graphile_worker.sql.schedules.runs import Run, RunOutcome, runs_of_schedules
from django_graphile_worker.text import readable_duration

DEFAULT_LIMIT = 100
MAX_FAILING = 10_000
CODE = "code"
DATABASE = "database"
_COLUMNS = (
    Column("NAME", gives_way=True),
    Column("TASK", gives_way=True),
    Column("WHEN", gives_way=True),
    Column("STATE"),
    Column("NEXT"),
    Column("LAST", gives_way=True),
    Column("FROM"),
)


class List(Verb):
    name = "list"
    summary = "List schedules, by name: what they run, when, and whether they are paused or failing."
    description = (
        "The recurring tasks of the code are listed below the schedules of the database, unless a state or a text is "
        "asked for: graphile_worker crontab shows and pauses them."
    )
    examples = ("", "--state paused", "--task send_report --search acme --json")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--task", metavar="TASK", help="List only schedules of this task.")
        parser.add_argument("--state", choices=texts.STATES, help="List only schedules in this state.")
        parser.add_argument(
            "--search", metavar="TEXT", help="List only schedules with this text in name or description."
        )
        arguments.add_limit(parser, "schedules", default=DEFAULT_LIMIT)

    def run(self, console: Console, options: Options) -> None:
        now, most = console.now(), options.get("limit") or DEFAULT_LIMIT
        found = list(_chosen(console, options, now)[: most + 1])
        failing = _failing_of(console, found)
        items = _code_rows(console, options, now)
        if console.is_json:
            listed = [texts.as_dict(schedule, now, is_failing=schedule.pk in failing) for schedule in found[:most]]
            console.dump({"schedules": listed, "code": [_item_as_dict(item, now, paused) for item, paused in items]})
        elif found or items:
            runs = _last_runs(console, found[:most])
            rows = [
                _schedule_row(console, schedule, runs.get(schedule.pk, []), now, is_failing=schedule.pk in failing)
                for schedule in found[:most]
            ]
            console.table(_COLUMNS, rows + [_item_row(console, item, now, paused) for item, paused in items])
        else:
            console.note("No schedules.")
        if len(found) > most:
            console.note(f"There are more schedules; these are the first {most}. Use --limit to list more.")


def _chosen(console: Console, options: Options, now: datetime) -> QuerySet[Schedule]:
    condition = Q()
    if options.get("task") is not None:
        condition &= Q(task=options["task"])
    if options.get("state") == texts.FAILING:
        condition &= Q(pk__in=_failing_ids(console))
    elif options.get("state") is not None:
        condition &= texts.condition(options["state"], now)
    if options.get("search") is not None:
        condition &= Q(name__icontains=options["search"]) | Q(description__icontains=options["search"])
    return Schedule.objects.using(database_of(console)).filter(condition).order_by("name")


def _code_rows(console: Console, options: Options, now: datetime) -> list[tuple[CronItem, bool]]:
    """Return the recurring tasks of the code, each with whether it is paused."""
    if options.get("state") is not None or options.get("search") is not None:
        return []
    items = [item for item in code_items(console) if options.get("task") in (None, item.task)]
    if not items:
        return []
    with console.reading() as (cursor, schema, _):
        known = from_code.known_items(cursor, schema=schema)
    return [(item, item.name in known and known[item.name].is_paused) for item in items]


def _last_runs(console: Console, schedules: Sequence[Schedule]) -> dict[int, list[Run]]:
    with console.reading() as (cursor, schema, _):
        return runs_of_schedules(cursor, [schedule.pk for schedule in schedules], schema=schema, number=1)


def _failing_of(console: Console, schedules: Sequence[Schedule]) -> set[int]:
    """Return the ids of those of the schedules whose last run failed, also if it is tried again."""
    with console.reading() as (cursor, schema, _):
        return listing.failing_ids(cursor, [schedule.pk for schedule in schedules], schema=schema)


def _failing_ids(console: Console) -> list[int]:
    with console.reading() as (cursor, schema, _):
        criteria = ScheduleCriteria(state=ScheduleState.FAILING)
        return matching_ids(cursor, criteria, schema=schema, limit=MAX_FAILING)


def _schedule_row(
    console: Console, schedule: Schedule, runs: list[Run], now: datetime, *, is_failing: bool
) -> list[Cell | str]:
    following = next(iter(texts.coming(schedule, now, 1)), None)
    return [
        schedule.name,
        schedule.task,
        texts.means(schedule),
        texts.state_cell(texts.state_of(schedule, now, is_failing=is_failing), console.style),
        "" if following is None else formatting.relative(following, now),
        _last_run(console, runs[0], now) if runs else "",
        CODE if schedule.is_from_code else DATABASE,
    ]


def _last_run(console: Console, run: Run, now: datetime) -> Cell:
    word = texts.outcome(run) or run.kind.replace("_", " ")
    paint = console.style.ERROR if run.outcome is RunOutcome.FAILED else None
    return Cell(f"{formatting.relative(run.tick, now)}, {word}", paint)


def _item_row(console: Console, item: CronItem, now: datetime, is_paused: bool) -> list[Cell | str]:
    coming = [] if is_paused else upcoming(item, now, 1)
    state = texts.PAUSED if is_paused else texts.ENABLED
    following = formatting.relative(coming[0], now) if coming else ""
    return [item.name, item.task, describe(item), texts.state_cell(state, console.style), following, "", CODE]


def _item_as_dict(item: CronItem, now: datetime, is_paused: bool) -> dict[str, Any]:
    return {
        "identifier": item.name,
        "task": item.task,
        "means": describe(item),
        "is_paused": is_paused,
        "next": [] if is_paused else upcoming(item, now, texts.NUMBER_OF_TIMES),
    }


DEFAULT_RUNS = 10
_RUNS = (
    Column("TICK"),
    Column("KIND"),
    Column("OUTCOME", gives_way=True),
    Column("DURATION", is_number=True),
    Column("JOB", is_number=True),
    Column("BY"),
)
_TIMES = (Column("TIME"), Column("NAME"), Column("TASK"))


class Show(Verb):
    name = "show"
    summary = "Show a schedule, its next times and its last runs."
    examples = ("nightly-report", "nightly-report --runs 50 --json")

    def add_arguments(self, parser: CommandParser) -> None:
        add_names(parser, is_several=False)
        parser.add_argument(
            "--runs",
            type=arguments.positive,
            default=DEFAULT_RUNS,
            metavar="N",
            help=f"Show at most N runs (default: {DEFAULT_RUNS}).",
        )

    def run(self, console: Console, options: Options) -> None:
        schedule, now = find(console, options["name"]), console.now()
        with console.reading() as (cursor, schema, _):
            runs = runs_of_schedules(cursor, [schedule.pk], schema=schema, number=options["runs"])[schedule.pk]
            is_failing = bool(failing_ids(cursor, [schedule.pk], schema=schema))
        if console.is_json:
            console.dump(
                texts.as_dict(schedule, now, is_failing=is_failing) | {"runs": [_run_as_dict(run) for run in runs]}
            )
            return
        console.say(texts.facts(schedule, now, console.style, is_failing=is_failing))
        console.say("")
        if runs:
            console.table(_RUNS, [_run_row(run, now) for run in runs])
        else:
            console.note("It has not run yet.")


class Next(Verb):
    name = "next"
    summary = "Show the next times of a schedule, or of all schedules."
    description = (
        "Times are in the time zone of the schedule, with the offset from UTC, so that a change to daylight saving "
        "time is seen. Without a name, the next time of each schedule that is enabled and not paused, the earliest "
        "first."
    )
    examples = ("", "nightly-report", "nightly-report --number 20 --after 2027-03-27")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", metavar="NAME", help="The name of the schedule (default: all).")
        parser.add_argument(
            "--number",
            type=arguments.positive,
            metavar="N",
            help=f"Show N times (default: {texts.NUMBER_OF_TIMES} of one schedule, 20 of all).",
        )
        parser.add_argument("--after", metavar="TIME", help="Show times after this time (default: now).")

    def run(self, console: Console, options: Options) -> None:
        if options["name"] is None:
            _show_all(console, options)
        else:
            _show_one(console, find(console, options["name"]), options)


def _show_one(console: Console, schedule: Schedule, options: Options) -> None:
    now = console.now()
    after = _after(options, schedule.time_zone, now)
    found = texts.coming(schedule, after, options["number"] or texts.NUMBER_OF_TIMES)
    state = texts.state_of(schedule, now)
    if console.is_json:
        console.dump(found)
        return
    for moment in found:
        console.say(f"{texts.in_its_zone(moment, schedule)} ({formatting.relative(moment, now)})")
    if not found:
        why = f"is {state}: it does not fire" if state in (texts.DISABLED, texts.PAUSED) else "does not fire any more"
        console.note(f"{schedule.name} {why}.")


def _show_all(console: Console, options: Options) -> None:
    now = console.now()
    after = _after(options, "UTC", now)
    enabled = Schedule.objects.using(database_of(console)).filter(texts.condition(texts.ENABLED, now))
    first = ((moment, schedule) for schedule in enabled for moment in texts.coming(schedule, after, 1))
    found = heapq.nsmallest(options["number"] or 20, first, key=lambda each: (each[0], each[1].name))
    if console.is_json:
        console.dump([{"name": schedule.name, "task": schedule.task, "at": moment} for moment, schedule in found])
    elif found:
        console.table(_TIMES, [[formatting.both(moment, now), each.name, each.task] for moment, each in found])
    else:
        console.note("No schedule will fire.")


def _after(options: Options, zone: str, now: datetime) -> datetime:
    if options["after"] is None:
        return now
    try:
        return parse_moment(options["after"], zone=zone, now=now)
    except ValueError as error:
        raise CommandError(f"--after: {error}") from error


def _run_row(run: Run, now: datetime) -> list[Cell | str]:
    number = f" x {run.number}" if run.number > 1 else ""
    duration = "" if run.duration is None else readable_duration(run.duration)
    job = "" if run.job_id is None else str(run.job_id)
    kind = run.kind.replace("_", " ")
    return [formatting.both(run.tick, now), f"{kind}{number}", texts.outcome(run), duration, job, run.run_by]


def _run_as_dict(run: Run) -> dict[str, Any]:
    return {
        "tick": run.tick,
        "kind": run.kind,
        "number": run.number,
        "outcome": run.outcome,
        "exception_class": run.exception_class,
        "attempts": run.attempts,
        "duration_seconds": run.duration,
        "job_id": run.job_id,
        "run_by": run.run_by,
    }
