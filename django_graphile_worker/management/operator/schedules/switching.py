"""``schedules pause``, ``resume``, ``enable``, ``disable``, ``run`` and ``delete``: act on schedules by their names."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker.management.operator import formatting, lookups
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.schedules.checking import changing
from django_graphile_worker.management.operator.schedules.found import (
    add_names,
    database_of,
    find,
    find_all,
    refuse_from_code,
)
from django_graphile_worker.management.operator.schedules.moments import parse_moment
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.models import Schedule
from django_graphile_worker.text import shown


class ByNames(Verb):
    """A verb that changes each of some schedules, or none of them."""

    # What is said of a schedule for which there was nothing to change.
    already: ClassVar[str] = ""

    def add_arguments(self, parser: CommandParser) -> None:
        add_names(parser, is_several=True)
        parser.add_argument("--by", metavar="NAME", help="The name to record (default: the user of this process).")

    def run(self, console: Console, options: Options) -> None:
        found = find_all(console, options["names"])
        with changing(database_of(console), options):
            said = [self.change(console, schedule, options) for schedule in found]
        pairs = list(zip(found, said, strict=True))
        if console.is_json:
            console.dump([{"name": each.name, "was_changed": text is not None} for each, text in pairs])
            return
        for schedule, text in pairs:
            if text is None:
                console.note(f"{shown(schedule.name)} {self.already}.")
            else:
                console.say(console.style.SUCCESS(f"{shown(schedule.name)} {text}."))

    @abstractmethod
    def change(self, console: Console, schedule: Schedule, options: Options) -> str | None:
        """Change a schedule and return what happened; None if there was nothing to change."""


class Pause(ByNames):
    name = "pause"
    summary = "Do not fire schedules until they are resumed, or until a time."
    description = "The times that a schedule misses while it is paused are not made up for, whatever its policy."
    examples = ("nightly-report", "sync-stock sync-prices --until +2h")

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        until = "End the pause then: +2h, or 2026-05-01T12:00 in the time zone of the schedule."
        parser.add_argument("--until", metavar="TIME", help=until)

    def change(self, console: Console, schedule: Schedule, options: Options) -> str | None:
        if options["until"] is None:
            schedule.pause(by=lookups.name_of_user(options))
            return "is paused until it is resumed"
        now = console.now()
        try:
            until = parse_moment(options["until"], zone=schedule.time_zone, now=now)
        except ValueError as error:
            raise CommandError(f"--until: {error}") from error
        if until <= now:
            raise CommandError(f"--until: expected a time in the future, got {formatting.both(until, now)}.")
        schedule.pause(until=until, by=lookups.name_of_user(options))
        return f"is paused until {formatting.both(until, now)}"


class Resume(ByNames):
    name = "resume"
    summary = "Fire paused schedules again, from now on."
    examples = ("nightly-report",)
    already = "was not paused"

    def change(self, console: Console, schedule: Schedule, options: Options) -> str | None:
        if schedule.paused_until is None:
            return None
        schedule.resume(by=lookups.name_of_user(options))
        return "is resumed from now on"


class Enable(ByNames):
    name = "enable"
    summary = "Enable schedules."
    examples = ("nightly-report",)
    already = "was enabled already"
    enables = True

    def change(self, console: Console, schedule: Schedule, options: Options) -> str | None:
        refuse_from_code(schedule)
        if schedule.is_enabled is self.enables:
            return None
        schedule.is_enabled = self.enables
        if self.enables:
            schedule.save(update_fields=["is_enabled"])
        else:
            # Without the checks of save(): a definition that is not valid can be disabled.
            Schedule.objects.using(database_of(console)).filter(pk=schedule.pk).update(is_enabled=False)
        return "is enabled" if self.enables else "is disabled"


class Disable(Enable):
    name = "disable"
    summary = "Disable schedules: they do not fire until they are enabled."
    examples = ("nightly-report sync-stock",)
    already = "was disabled already"
    enables = False


class Delete(ByNames):
    name = "delete"
    summary = "Delete schedules. Nothing fires after that; jobs that were added stay."
    examples = ("nightly-report",)

    def change(self, console: Console, schedule: Schedule, options: Options) -> str | None:
        if schedule.is_in_code:
            refuse_from_code(schedule)
        schedule.delete()
        return "is deleted"


class Run(Verb):
    name = "run"
    summary = "Add a job for a schedule now, beside its times."
    description = "It works for a disabled or paused schedule, too, and does not change its next time."
    examples = ("nightly-report", "nightly-report --by maria --json")

    def add_arguments(self, parser: CommandParser) -> None:
        add_names(parser, is_several=False)
        parser.add_argument("--by", metavar="NAME", help="The name to record (default: the user of this process).")

    def run(self, console: Console, options: Options) -> None:
        schedule = find(console, options["name"])
        with changing(database_of(console), options):
            job: Any = schedule.run_now(by=lookups.name_of_user(options))
        if console.is_json:
            console.dump({"name": schedule.name, "task": schedule.task, "job_id": job})
        else:
            console.say(console.style.SUCCESS(f"Added {shown(schedule.task)} #{job} for {shown(schedule.name)}."))
