from __future__ import annotations

import os
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.management.color import no_style
from django.db import OperationalError

from django_graphile_worker import __version__
from django_graphile_worker.checks.databases import check_psycopg, in_one_line
from django_graphile_worker.exceptions import GraphileWorkerError

try:
    from django_graphile_worker.management.operator import VERBS
    from django_graphile_worker.management.operator.console import Console
    from django_graphile_worker.management.operator.verb import add_verbs
except ModuleNotFoundError as error:
    if error.name != "psycopg":
        raise
    # Django does not catch a CommandError while it loads this module.
    raise SystemExit(f"CommandError: {in_one_line(check_psycopg())}") from None


class Command(BaseCommand):
    help = "Inspect and change the queue. Each verb has its own --help."
    requires_system_checks = []

    def get_version(self) -> str:
        return __version__

    def add_arguments(self, parser: CommandParser) -> None:
        add_verbs(parser, VERBS)

    def handle(self, *args: Any, **options: Any) -> None:
        if problems := check_psycopg():
            raise CommandError(in_one_line(problems))
        is_colored = options["force_color"] or (self.stdout.isatty() and not os.environ.get("NO_COLOR"))
        console = Console(
            out=self.stdout,
            err=self.stderr,
            style=self.style if is_colored and not options["no_color"] else no_style(),
            using=options.get("database"),
            installation=options.get("installation"),
            is_json=options.get("json", False),
        )
        try:
            next(verb for verb in VERBS if verb.name == options["verb"]).run(console, options)
        except GraphileWorkerError as error:
            raise CommandError(str(error)) from error
        except OperationalError as error:
            raise CommandError(f"The database answered with an error: {error}") from error
