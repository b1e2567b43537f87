"""``queues``, ``pause`` and ``resume``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker import api
from django_graphile_worker.exceptions import UnknownQueueError, UnknownTaskError
from django_graphile_worker.management.operator import arguments, formatting, lookups
from django_graphile_worker.management.operator.arguments import did_you_mean
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Cell, Column
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql import control
from django_graphile_worker.sql.inspection import queue_depths
from django_graphile_worker.sql.inspection.queue_depths import QueueDepth
from django_graphile_worker.text import shown

DEFAULT_LIMIT = 50


class Queues(Verb):
    name = "queues"
    summary = "List queues, the workers that hold them, and how many jobs wait."
    description = (
        "List named queues: those that a worker holds, paused queues, then others. Count waiting jobs, including "
        f"scheduled jobs, up to {queue_depths.MAX_COUNTED:,} for each queue."
    )
    examples = ("", "--queue warehouse", "--held --json")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queue", metavar="QUEUE", help="List only this queue.")
        parser.add_argument("--held", action="store_true", help="List only queues that are held or paused.")
        arguments.add_limit(parser, "queues", default=DEFAULT_LIMIT)

    def run(self, console: Console, options: Options) -> None:
        limit, name = options["limit"], options["queue"]
        with console.reading() as (cursor, schema, now):
            found = queue_depths.held_first(
                cursor,
                limit=limit + 1,
                name=name,
                only_held=options["held"],
                most=queue_depths.MAX_COUNTED,
                schema=schema,
            )
        if console.is_json:
            console.dump([_queue_as_dict(queue) for queue in found[:limit]])
        elif found:
            console.table(_QUEUE_COLUMNS, [_queue_row(queue, now) for queue in found[:limit]])
        else:
            console.note("No queues.")
        if len(found) > limit:
            console.note(f"There are more queues; these are the first {limit}. Use --limit to list more.")


_QUEUE_COLUMNS = (
    Column("QUEUE", gives_way=True),
    Column("WAITING", is_number=True),
    Column("FIRST RUN AT", gives_way=True),
    Column("HELD BY"),
    Column("SINCE"),
)


def _queue_row(queue: QueueDepth, now: datetime) -> list[Cell | str]:
    number, is_capped = _waiting(queue)
    return [
        queue.queue_name,
        f"{number}{'+' if is_capped else ''}",
        formatting.both(queue.oldest, now),
        _holder(queue, now),
        _since(queue, now),
    ]


def _holder(queue: QueueDepth, now: datetime) -> str:
    if not queue.is_paused:
        return queue.locked_by or ""
    return "paused" if queue.paused_until is None else f"paused until {formatting.both(queue.paused_until, now)}"


def _since(queue: QueueDepth, now: datetime) -> str:
    since = queue.paused_at if queue.is_paused else queue.locked_at
    return "-" if since is None else formatting.relative(since, now)


def _queue_as_dict(queue: QueueDepth) -> dict[str, Any]:
    number, is_capped = _waiting(queue)
    return {
        "queue_name": queue.queue_name,
        "locked_by": None if queue.is_paused else queue.locked_by,
        "locked_at": None if queue.is_paused else queue.locked_at,
        "is_paused": queue.is_paused,
        "paused_until": queue.paused_until,
        "pause_reason": queue.pause_reason,
        "paused_by": queue.paused_by,
        "waiting": number,
        "is_capped": is_capped,
        "earliest_run_at": queue.oldest,
    }


def _waiting(queue: QueueDepth) -> tuple[int, bool]:
    """Return the number of waiting jobs, and whether there are more."""
    return min(queue.number, queue_depths.MAX_COUNTED), queue.number > queue_depths.MAX_COUNTED


def add_target(parser: CommandParser, *, is_required: bool) -> None:
    """Add the options that name what is paused."""
    target = parser.add_mutually_exclusive_group(required=is_required)
    target.add_argument("--queue", metavar="QUEUE", help="The name of a queue.")
    target.add_argument("--task", metavar="TASK", help="The identifier of a task.")
    target.add_argument("--flag", metavar="FLAG", help="A flag: all jobs that have it.")
    arguments.add_by(parser)


def target_of(options: Options) -> dict[str, Any]:
    """Return the arguments of the API that name what is paused; empty if no option was given."""
    return {kind: options[kind] for kind in ("queue", "task", "flag") if options[kind] is not None}


def sentence(pause: control.Pause, now: datetime) -> str:
    """Return what is paused, until when, by whom and why."""
    until = "until it is resumed" if pause.until is None else f"until {formatting.both(pause.until, now)}"
    by = f", by {shown(pause.by)}" if pause.by else ""
    reason = f": {shown(pause.reason)}" if pause.reason else ""
    return f"{pause.kind} {shown(pause.name)} {until}{by}{reason}"


def as_dict(pause: control.Pause) -> dict[str, Any]:
    return {
        "kind": pause.kind.value,
        "name": pause.name,
        "paused_at": pause.paused_at,
        "until": pause.until,
        "reason": pause.reason,
        "by": pause.by,
    }


class Pause(Verb):
    name = "pause"
    summary = "Pause a queue, a task or a flag; without one of them, list what is paused."
    description = (
        "Let the jobs of a queue or a task, or all jobs with a flag, wait until they are resumed or until a time. Jobs "
        "that run finish. A paused queue also binds workers of Node.js; a paused task or flag does not. Pausing again "
        "changes the end and the reason. A queue or a task that is not in the database is refused without --create."
    )
    examples = (
        "",
        "--queue mail --until +1h --reason 'the provider is down'",
        "--task shop:charge --until 2026-05-01T12:00",
        "--flag bulk",
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_target(parser, is_required=False)
        parser.add_argument(
            "--until",
            type=arguments.run_at,
            metavar="TIME",
            help="End the pause then: +1h30m, or 2026-05-01T12:00 (default: when it is resumed).",
        )
        parser.add_argument("--reason", default="", metavar="TEXT", help="Why, for other operators.")
        parser.add_argument(
            "--create", action="store_true", help="Pause a queue or a task that is not in the database, too."
        )

    def run(self, console: Console, options: Options) -> None:
        target = target_of(options)
        if not target:
            self._list(console, options)
            return
        try:
            pause = api.pause(
                **target,
                until=options["until"],
                reason=options["reason"],
                by=lookups.name_of_user(options),
                create=options["create"],
                **console.place,
            )
        except (UnknownQueueError, UnknownTaskError) as error:
            raise CommandError(str(error).replace("create=True", "--create")) from error
        if console.is_json:
            console.dump(as_dict(pause))
        else:
            console.say(console.style.SUCCESS(f"Paused: {sentence(pause, console.now())}."))

    def _list(self, console: Console, options: Options) -> None:
        if options["until"] is not None or options["reason"] or options["create"]:
            raise CommandError("Name what to pause with --queue, --task or --flag.")
        paused = api.pauses(**console.place)
        if console.is_json:
            console.dump([as_dict(pause) for pause in paused])
            return
        now = console.now()
        for pause in paused:
            console.say(sentence(pause, now))
        if not paused:
            console.note("Nothing is paused.")


class Resume(Verb):
    name = "resume"
    summary = "End the pause of a queue, a task or a flag."
    description = (
        "Let jobs start again that a pause has kept waiting. With --all, end every pause. If a job of a paused queue "
        "still runs, the next job of the queue starts after it."
    )
    examples = ("--queue mail", "--task shop:charge", "--all")

    def add_arguments(self, parser: CommandParser) -> None:
        add_target(parser, is_required=False)
        parser.add_argument("--all", action="store_true", help="Resume everything that is paused.")

    def run(self, console: Console, options: Options) -> None:
        target = target_of(options)
        if bool(target) == options["all"]:
            raise CommandError("One of --queue, --task, --flag and --all is required.")
        by = lookups.name_of_user(options)
        paused = api.pauses(**console.place)
        targets = [target] if target else [{pause.kind.value: pause.name} for pause in paused]
        ended = [pause for each in targets if (pause := api.resume(**each, by=by, **console.place)) is not None]
        if console.is_json:
            console.dump([as_dict(pause) for pause in ended])
        else:
            _report(console, target, ended, paused)


def _report(
    console: Console,
    target: dict[str, Any],
    ended: Sequence[control.Pause],
    paused: Sequence[control.Pause],
) -> None:
    for pause in ended:
        console.say(console.style.SUCCESS(f"Resumed: {pause.kind} {shown(pause.name)}."))
    if ended:
        return
    for kind, name in target.items():
        hint = did_you_mean(name, [pause.name for pause in paused if pause.kind == kind])
        console.note(f"The {kind} {shown(name)} was not paused.{hint}")
    if not target:
        console.note("Nothing was paused.")
