"""``schedules``: list, show, pause and run schedules, and the recurring tasks of the code."""

from __future__ import annotations

from abc import abstractmethod
from argparse import ArgumentTypeError
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError
from django.db import connections
from django.db.models import BooleanField
from django.db.models.expressions import RawSQL
from django.utils import translation

from django_graphile_worker.management.arguments import Argument, number, time
from django_graphile_worker.management.operator import schedule_rows
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Columns, aware, both, relative
from django_graphile_worker.management.operator.schedule_files import Export, Import, ImportCeleryBeat
from django_graphile_worker.management.operator.schedule_rows import PAUSED, code_items, no_schedule, schedules_of
from django_graphile_worker.management.operator.verb import BY, Options, Verb, VerbGroup, limit_of, name_of_user
from django_graphile_worker.models import Schedule
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql.schedules import from_code, listing
from django_graphile_worker.sql.schedules.listing import ScheduleCriteria, ScheduleState
from django_graphile_worker.sql.schedules.runs import Run as PastRun
from django_graphile_worker.sql.schedules.runs import runs_of_schedules
from django_graphile_worker.text import quoted

LIMIT = 100
STATES = {
    "enabled": ScheduleState.ACTIVE,
    **{state: ScheduleState(state) for state in ("paused", "disabled", "ended", "failing", "missed", "late")},
}
SCHEDULES: Columns = (
    *("name", "task", "state", ("NEXT", lambda each: next(iter(each["next"]), None)), "means", "last"),
    ("FROM", lambda each: each.get("from") or ("code" if each["is_from_code"] else "database")),
)
RUNS: Columns = ("tick", "kind", "number", "outcome", "exception_class", "duration_seconds", "job_id", "run_by")
NAMES = Argument("names", "NAME", "The names of schedules.", nargs="+")


class List(Verb):
    name = "list"
    summary = "List schedules and the recurring tasks of the code: what they run, when, and their state."
    description = (
        "The recurring tasks of the code are the items of CRONTAB, of CRONTAB_FILE and of @task(cron=...), and the "
        "items that other projects have recorded in the database."
    )
    examples = ("", "--state paused", "--task send_report --json")
    arguments = (
        Argument("--task", "TASK", "List only schedules of this task."),
        Argument("--state", "", "List only schedules in this state.", choices=list(STATES)),
        limit_of("schedules", LIMIT),
    )

    def run(self, console: Console, options: Options) -> None:
        task, state, limit = options.get("task"), options.get("state"), options.get("limit") or LIMIT
        chosen = schedules_of(console).order_by("name")
        if task is not None:
            chosen = chosen.filter(task=task)
        if state is not None:
            table = connections[chosen.db].ops.quote_name(Schedule._meta.db_table)
            criteria = ScheduleCriteria(state=STATES[state])
            text, parameters = listing.expression(criteria, table, schema=console.settings.schema)
            chosen = chosen.filter(RawSQL(text, parameters, BooleanField()))
        with console.reading() as (cursor, schema, now):
            rows = list(chosen[: limit + 1])
            ids = [each.pk for each in rows[:limit]]
            failing = listing.failing_ids(cursor, ids, schema=schema)
            runs = runs_of_schedules(cursor, ids, schema=schema, number=1)
        items = [each for each in code_items(console) if state in (None, each.state) and task in (None, each.task)]
        found = {
            "schedules": [schedule_rows.as_dict(each, now, is_failing=each.pk in failing) for each in rows[:limit]],
            "code": [each.as_dict(now) for each in items if each.item is not None],
            "others": [each.as_dict(now) for each in items if each.item is None],
        }
        if console.is_json:
            console.dump(found)
        elif rows or items:
            lasts = {key: f"{relative(run.tick, now)}, {run.outcome}" for key, ended in runs.items() for run in ended}
            listed = [each | {"last": lasts.get(each["id"])} for each in found["schedules"]]
            console.table([*listed, *(each.row(now) for each in items)], SCHEDULES, now)
        else:
            console.note("No schedules.")
        if len(rows) > limit:
            console.note(f"There are more schedules; these are the first {limit}. Use --limit to list more.")


class Show(Verb):
    name = "show"
    summary = "Show a schedule or a recurring task of the code, its next times and its last runs."
    description = (
        "The next times of a schedule are in its time zone, with the offset from UTC, so that a change to daylight "
        "saving time is seen."
    )
    examples = ("nightly-report", "nightly-report --runs 50 --json", "nightly-report --next 20 --after 2027-03-27")
    arguments = (
        Argument("name", "NAME", "The name of the schedule."),
        Argument("--runs", "N", "Show at most N runs (default: 10).", number(1), default=10),
        Argument("--next", "N", "Show the next N times (default: 5).", number(1), default=5),
        Argument("--after", "TIME", "Show times after this time (default: now)."),
    )

    def run(self, console: Console, options: Options) -> None:
        now, name = console.now(), options["name"]
        schedule = schedules_of(console).filter(name=name).first()
        if schedule is None:
            _show_item(console, options, now)
            return
        after = _moment(options, "after", schedule.time_zone, now) or now
        times = schedule_rows.coming(schedule, after, options["next"])
        with console.reading() as (cursor, schema, _):
            runs = runs_of_schedules(cursor, [schedule.pk], schema=schema, number=options["runs"])[schedule.pk]
            is_failing = bool(listing.failing_ids(cursor, [schedule.pk], schema=schema))
        about = schedule_rows.as_dict(schedule, now, times, is_failing=is_failing)
        if console.is_json:
            console.dump(about | {"runs": [_run_as_dict(run) for run in runs]})
            return
        console.facts(schedule_rows.facts_of(about, schedule, now), now)
        if not times and about["state"] != PAUSED:
            console.note("It does not fire any more." if schedule.is_enabled else "It does not fire.")
        if runs:
            console.say("")
            console.table([_run_as_dict(run) for run in runs], RUNS, now)
        else:
            console.note("It has not run yet.")


def _show_item(console: Console, options: Options, now: datetime) -> None:
    found = next((each for each in code_items(console) if each.name == options["name"]), None)
    if found is None:
        raise no_schedule(console, options["name"])
    after = _moment(options, "after", "UTC", now) or now
    about = found.as_dict(after, options["next"])
    if console.is_json:
        console.dump(about)
    else:
        console.facts(about, now)


def _moment(options: Options, name: str, zone: str, now: datetime) -> datetime | None:
    """Return the time of an option: ``now``, ``+5m`` from now, or ISO 8601 in the time zone of a schedule."""
    if options[name] is None:
        return None
    try:
        moment = time(options[name], schedule_rows.zone_or_utc(zone))
        return aware(now) + moment if isinstance(moment, timedelta) else moment
    except (ArgumentTypeError, OverflowError) as error:
        raise CommandError(f"--{name}: {error}") from error


def _run_as_dict(run: PastRun) -> dict[str, Any]:
    names = ("tick", "kind", "number", "outcome", "exception_class", "attempts", "job_id", "run_by")
    return {**{name: getattr(run, name) for name in names}, "duration_seconds": run.duration}


class Switch(Verb):
    """A verb that changes each of some schedules and recurring tasks of the code, or none of them."""

    # What is said if there was nothing to change.
    already: str
    arguments: Sequence[Argument] = (NAMES, BY)

    @abstractmethod
    def change(self, schedule: Schedule, options: Options, now: datetime) -> str | None:
        """Change a schedule, and return what happened; None if there was nothing to change."""

    @abstractmethod
    def change_item(self, cursor: Any, name: str, *, schema: str) -> str | None:
        """Do the same for a recurring task of the code."""

    def run(self, console: Console, options: Options) -> None:
        using, now, names = place_of(**console.place).using, console.now(), list(dict.fromkeys(options["names"]))
        rows = {each.name: each for each in schedules_of(console).filter(name__in=names)}
        _refuse_others(console, [name for name in names if name not in rows], options)
        said = {}
        with schedule_rows.changing(using, options), connections[using].cursor() as cursor:
            for name in names:
                if name in rows:
                    said[name] = self.change(rows[name], options, now)
                else:
                    said[name] = self.change_item(cursor, name, schema=console.settings.schema)
        if console.is_json:
            console.dump([{"name": name, "was_changed": text is not None} for name, text in said.items()])
            return
        for name, text in said.items():
            if text is None:
                console.note(f"{name} {self.already}.")
            else:
                console.done(f"{name} {text}.")


def _refuse_others(console: Console, names: Sequence[str], options: Options) -> None:
    """Raise CommandError for a name that is not that of a recurring task of the code which can be changed."""
    found = {each.name: each for each in code_items(console)} if names else {}
    for name in names:
        if name not in found:
            raise no_schedule(console, name)
        if found[name].known is None:
            raise CommandError(f"{quoted(name)} is in no worker yet: start a worker with it first.")
        if options.get("until") is not None:
            raise CommandError(f"--until: {quoted(name)} is a recurring task of the code: resume it yourself.")


class Pause(Switch):
    name = "pause"
    summary = "Do not fire schedules or recurring tasks of the code until they are resumed, or until a time."
    description = (
        "The times that a schedule misses while it is paused are not made up for, whatever its policy. A recurring "
        "task of the code is paused for all workers, also for those of Node.js."
    )
    examples = ("nightly-report", "sync-stock sync-prices --until +2h")
    already = "was paused already"

    arguments = (NAMES, BY, Argument("--until", "TIME", "End the pause then: +2h, or 2026-05-01T12:00."))

    def change(self, schedule: Schedule, options: Options, now: datetime) -> str | None:
        until = _moment(options, "until", schedule.time_zone, now)
        if until is not None and until <= aware(now):
            raise CommandError(f"--until: expected a time in the future, got {both(until, now)}.")
        schedule.pause(until, by=name_of_user(options))
        return f"is paused until {'it is resumed' if until is None else both(until, now)}"

    def change_item(self, cursor: Any, name: str, *, schema: str) -> str | None:
        return "is paused until it is resumed" if from_code.pause(cursor, name, schema=schema) else None


class Resume(Switch):
    name = "resume"
    summary = "Fire paused schedules again, from now on."
    examples = ("nightly-report", "nightly-report sync-stock")
    already = "was not paused"

    def change(self, schedule: Schedule, options: Options, now: datetime) -> str | None:
        if schedule.paused_until is None:
            return None
        schedule.resume(by=name_of_user(options))
        return "is resumed from now on"

    def change_item(self, cursor: Any, name: str, *, schema: str) -> str | None:
        return "is resumed from now on" if from_code.resume(cursor, name, schema=schema) else None


class Run(Verb):
    name = "run"
    summary = "Add a job for a schedule now, beside its times."
    description = "It works for a disabled or paused schedule, too, and does not change its next time."
    examples = ("nightly-report", "nightly-report --by maria --json")
    arguments = (Argument("name", "NAME", "The name of the schedule."), BY)

    def run(self, console: Console, options: Options) -> None:
        (schedule,) = schedule_rows.find_all(console, [options["name"]])
        with schedule_rows.changing(schedule_rows.database_of(console), options):
            job_id = schedule.run_now(by=name_of_user(options))
        if console.is_json:
            console.dump({"name": schedule.name, "task": schedule.task, "job_id": job_id})
        else:
            console.done(f"Added {schedule.task} #{job_id} for {schedule.name}.")


class Schedules(VerbGroup):
    name = "schedules"
    summary = "List, show, pause, run, export and import schedules; without a verb, list them."
    description = (
        "A schedule is a row of the database that says when a task runs. To add and change schedules, use the admin, "
        "the model Schedule, or 'schedules import'. The verbs of schedules have a --help each."
    )
    examples = ("", "pause nightly-report --until +2h", "export > schedules.json")
    verbs = (List(), Show(), Pause(), Resume(), Run(), Export(), Import(), ImportCeleryBeat())

    def run(self, console: Console, options: Options) -> None:
        # The texts of the command line are English, those of the model are translated.
        with translation.override(None):
            super().run(console, options)
