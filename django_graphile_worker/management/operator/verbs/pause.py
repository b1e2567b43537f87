"""``pause``: let the jobs of a queue, a task or a flag wait; without a target, list what is paused."""

from __future__ import annotations

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker import api
from django_graphile_worker.exceptions import UnknownQueueError, UnknownTaskError
from django_graphile_worker.management.operator import arguments, pause_targets
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options, Verb


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
        pause_targets.add_target(parser, is_required=False)
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
        target = pause_targets.target_of(options)
        if not target:
            self._list(console, options)
            return
        try:
            pause = api.pause(
                **target,
                until=options["until"],
                reason=options["reason"],
                by=pause_targets.name_of_user(options),
                create=options["create"],
                **console.place,
            )
        except (UnknownQueueError, UnknownTaskError) as error:
            raise CommandError(str(error).replace("create=True", "--create")) from error
        if console.is_json:
            console.dump(pause_targets.as_dict(pause))
        else:
            console.say(console.style.SUCCESS(f"Paused: {pause_targets.sentence(pause, console.now())}."))

    def _list(self, console: Console, options: Options) -> None:
        if options["until"] is not None or options["reason"] or options["create"]:
            raise CommandError("Expected what to pause, got only how: name it with --queue, --task or --flag.")
        paused = api.pauses(**console.place)
        if console.is_json:
            console.dump([pause_targets.as_dict(pause) for pause in paused])
            return
        now = console.now()
        for pause in paused:
            console.say(pause_targets.sentence(pause, now))
        if not paused:
            console.note("Nothing is paused.")
