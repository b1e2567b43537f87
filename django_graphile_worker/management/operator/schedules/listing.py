"""``schedules list``, ``show`` and ``next``: what schedules there are, and when they fire."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser
from django.db.models import Q, QuerySet

from django_graphile_worker.crontab import CronItem, describe, upcoming
from django_graphile_worker.management.operator import arguments, formatting
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Cell, Column
from django_graphile_worker.management.operator.schedules import states, texts
from django_graphile_worker.management.operator.schedules.found import code_items, database_of
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.models import Schedule
from django_graphile_worker.sql.schedules import from_code, listing
from django_graphile_worker.sql.schedules.listing import ScheduleCriteria, ScheduleState, matching_ids
from django_graphile_worker.sql.schedules.runs import Run, RunOutcome, runs_of_schedules

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
        parser.add_argument("--state", choices=states.STATES, help="List only schedules in this state.")
        parser.add_argument(
            "--search", metavar="TEXT", help="List only schedules with this text in name or description."
        )
        parser.add_argument(
            "--limit",
            type=arguments.positive,
            default=DEFAULT_LIMIT,
            metavar="N",
            help=f"List at most N schedules (default: {DEFAULT_LIMIT}).",
        )

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
                _row(console, schedule, runs.get(schedule.pk, []), now, is_failing=schedule.pk in failing)
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
    if options.get("state") == states.FAILING:
        condition &= Q(pk__in=_failing_ids(console))
    elif options.get("state") is not None:
        condition &= states.condition(options["state"], now)
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


def _row(console: Console, schedule: Schedule, runs: list[Run], now: datetime, *, is_failing: bool) -> list[Cell | str]:
    following = next(iter(texts.coming(schedule, now, 1)), None)
    return [
        schedule.name,
        schedule.task,
        texts.means(schedule),
        texts.state_cell(states.state_of(schedule, now, is_failing=is_failing), console.style),
        "" if following is None else formatting.relative(following, now),
        _last(console, runs[0], now) if runs else "",
        CODE if schedule.is_from_code else DATABASE,
    ]


def _last(console: Console, run: Run, now: datetime) -> Cell:
    word = texts.outcome(run) or run.kind.replace("_", " ")
    paint = console.style.ERROR if run.outcome is RunOutcome.FAILED else None
    return Cell(f"{formatting.relative(run.tick, now)}, {word}", paint)


def _item_row(console: Console, item: CronItem, now: datetime, is_paused: bool) -> list[Cell | str]:
    coming = [] if is_paused else upcoming(item, now, 1)
    state = states.PAUSED if is_paused else states.ENABLED
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
