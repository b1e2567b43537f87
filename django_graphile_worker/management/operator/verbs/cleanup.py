"""``cleanup``: delete old failed jobs and unused names."""

from __future__ import annotations

import dataclasses

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker import api
from django_graphile_worker.management.operator import arguments
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted
from django_graphile_worker.management.operator.verb import Options, Verb


class Cleanup(Verb):
    name = "cleanup"
    summary = "Delete old failed jobs, and names that no job uses."
    description = (
        "Delete what the options select; this is safe while workers run. Names of tasks that this project or a live "
        "worker has are kept. Node's workers do not register their tasks, so omit --tasks if such workers share the "
        "queue."
    )
    examples = ("--permanently-failed-older-than 7d", "--permanently-failed-older-than 30d --queues --tasks")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--permanently-failed-older-than",
            type=arguments.period,
            metavar="AGE",
            help="Delete jobs that failed permanently more than AGE ago: 7d, 12h, 4w.",
        )
        parser.add_argument("--queues", action="store_true", help="Delete the names of queues without jobs.")
        parser.add_argument("--tasks", action="store_true", help="Delete the names of tasks without jobs.")

    def run(self, console: Console, options: Options) -> None:
        age = options["permanently_failed_older_than"]
        if age is None and not options["queues"] and not options["tasks"]:
            raise CommandError("Expected --permanently-failed-older-than, --queues or --tasks, got none of them.")
        result = api.cleanup(
            failed_jobs_older_than=age,
            unused_queues=options["queues"],
            unused_tasks=options["tasks"],
            **console.place,
        )
        if console.is_json:
            console.dump(dataclasses.asdict(result))
        else:
            names = f"{counted(result.queues, 'queue name')}, {counted(result.tasks, 'task name')}"
            console.say(console.style.SUCCESS(f"Deleted {counted(result.jobs, 'job')}, {names}."))
        if not result.is_complete:
            console.note(
                "Not all names were checked: jobs were added continuously, or a worker does not register its tasks. "
                "Try again later."
            )
