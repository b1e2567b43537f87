"""``schedules show`` and ``next``: one schedule with its times and its last runs, and the times of all."""

from __future__ import annotations

import heapq
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker.management.operator import arguments, formatting
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Cell, Column
from django_graphile_worker.management.operator.schedules import states, texts
from django_graphile_worker.management.operator.schedules.found import add_names, database_of, find
from django_graphile_worker.management.operator.schedules.moments import parse_moment
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.models import Schedule
from django_graphile_worker.sql.schedules.listing import failing_ids
from django_graphile_worker.sql.schedules.runs import Run, runs_of_schedules
from django_graphile_worker.text import readable_duration

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
    state = states.state_of(schedule, now)
    if console.is_json:
        console.dump(found)
        return
    for moment in found:
        console.say(f"{texts.in_its_zone(moment, schedule)} ({formatting.relative(moment, now)})")
    if not found:
        why = f"is {state}: it does not fire" if state in (states.DISABLED, states.PAUSED) else "does not fire any more"
        console.note(f"{schedule.name} {why}.")


def _show_all(console: Console, options: Options) -> None:
    now = console.now()
    after = _after(options, "UTC", now)
    enabled = Schedule.objects.using(database_of(console)).filter(states.condition(states.ENABLED, now))
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
