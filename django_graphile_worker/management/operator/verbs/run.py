"""``run``: run a worker, like ``runworker``."""

from __future__ import annotations

from django.core.management.base import CommandParser

from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.management.options import add_worker_arguments
from django_graphile_worker.management.worker_command import WorkerCommand


class Run(Verb):
    name = "run"
    summary = "Run a worker: the same as runworker."
    description = "Run the jobs in the queue until stopped: for sites where another app has a command runworker."
    examples = ("", "-j 20 --processes 2", "--once")
    has_usual_options = False

    def add_arguments(self, parser: CommandParser) -> None:
        add_worker_arguments(parser)
        parser.add_argument("--skip-checks", action="store_true", help="Skip system checks.")

    def run(self, console: Console, options: Options) -> None:
        command = WorkerCommand(no_color=options["no_color"], force_color=options["force_color"])
        command.stdout, command.stderr, command.style = console.out, console.err, console.style
        # Django sets this on the command that it calls itself.
        command._called_from_command_line = console.owns_process
        rest = {name: value for name, value in options.items() if name not in {"verb", "stdout", "stderr"}}
        command.execute(**rest)
