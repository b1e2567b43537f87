"""The command ``runworker``, which ``graphile_worker run`` executes, too."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_graphile_worker import __version__
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.management.options import add_worker_arguments, plan_from
from django_graphile_worker.worker.process.plan import is_watched


class WorkerCommand(BaseCommand):
    """A command that runs a worker: turns options into a plan, starts the plan, and ends with its exit code."""

    requires_system_checks = ["graphile_worker"]
    # Set by Django: False under call_command().
    _called_from_command_line: bool

    def get_version(self) -> str:
        return __version__

    def get_check_kwargs(self, options: dict[str, Any]) -> Any:
        # The worker checks its database later, when it can report more about it.
        return {"tags": self.requires_system_checks, "databases": []}

    def add_arguments(self, parser: CommandParser) -> None:
        add_worker_arguments(parser)

    def execute(self, *args: Any, **options: Any) -> str | None:
        if options["reload"] and not is_watched():
            # A mistake in the code must not end the process that waits for changes of the code.
            options["skip_checks"] = True
        return super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        # Late import: if psycopg 3 is missing, the system checks, which run before this, report it.
        from django_graphile_worker.worker.process.start import start

        plan = plan_from(options, is_colored=self._is_colored(options))
        try:
            code = start(plan, say=self._say, complain=self._complain, owns_process=self._called_from_command_line)
        except GraphileWorkerError as error:
            raise CommandError(str(error), returncode=error.exit_code) from error
        if code:
            sys.exit(code)

    def _is_colored(self, options: dict[str, Any]) -> bool:
        if options.get("force_color"):
            return True
        return self.stderr.isatty() and not options.get("no_color") and not os.environ.get("NO_COLOR")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()

    def _complain(self, text: str) -> None:
        self.stderr.write(f"CommandError: {text}")
