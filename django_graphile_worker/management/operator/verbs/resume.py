"""``resume``: end the pause of a queue, a task or a flag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker import api
from django_graphile_worker.management.operator import pause_targets
from django_graphile_worker.management.operator.arguments import did_you_mean
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql import pauses
from django_graphile_worker.text import shown


class Resume(Verb):
    name = "resume"
    summary = "End the pause of a queue, a task or a flag."
    description = (
        "Let jobs start again that a pause has kept waiting. With --all, end every pause. If a job of a paused queue "
        "still runs, the next job of the queue starts after it."
    )
    examples = ("--queue mail", "--task shop:charge", "--all")

    def add_arguments(self, parser: CommandParser) -> None:
        pause_targets.add_target(parser, is_required=False)
        parser.add_argument("--all", action="store_true", help="Resume everything that is paused.")

    def run(self, console: Console, options: Options) -> None:
        target = pause_targets.target_of(options)
        if bool(target) == options["all"]:
            raise CommandError("Expected one of --queue, --task, --flag and --all.")
        by = pause_targets.name_of_user(options)
        paused = api.pauses(**console.place)
        targets = [target] if target else [{pause.kind.value: pause.name} for pause in paused]
        ended = [pause for each in targets if (pause := api.resume(**each, by=by, **console.place)) is not None]
        if console.is_json:
            console.dump([pause_targets.as_dict(pause) for pause in ended])
        else:
            _report(console, target, ended, paused)


def _report(
    console: Console,
    target: dict[str, Any],
    ended: Sequence[pauses.Pause],
    paused: Sequence[pauses.Pause],
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
