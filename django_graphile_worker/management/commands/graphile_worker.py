from __future__ import annotations

import argparse
import os
import re
import textwrap
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser, DjangoHelpFormatter
from django.core.management.color import no_style
from django.db import OperationalError

from django_graphile_worker.checks.databases import check_psycopg, in_one_line
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.management.operator.arguments import did_you_mean
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Verb

try:
    from django_graphile_worker.management.operator.verbs import BY_NAME, VERBS
except ModuleNotFoundError as error:
    if error.name != "psycopg":
        raise
    # Django does not catch a CommandError while it loads this module.
    raise SystemExit(f"CommandError: {in_one_line(check_psycopg())}") from None


class HelpFormatter(DjangoHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """A formatter that has the order of options of Django, and keeps the lines of examples."""


class Command(BaseCommand):
    help = "Inspect and change the queue. Each verb has its own --help."
    requires_system_checks = []
    # Set by Django: False under call_command().
    _called_from_command_line: bool

    def add_arguments(self, parser: CommandParser) -> None:
        _suggest_verbs(parser)
        verbs = parser.add_subparsers(dest="verb", metavar="verb", required=True, title="verbs")
        for verb in VERBS:
            added = verbs.add_parser(
                verb.name,
                aliases=verb.aliases,
                help=verb.summary,
                description=_filled(f"{verb.summary} {verb.description}".strip()),
                epilog=_examples(verb),
                formatter_class=HelpFormatter,
            )
            verb.add_arguments(added)
            if verb.has_usual_options:
                _add_usual_options(added)
            self._add_django_options(added)

    def _add_django_options(self, parser: CommandParser) -> None:
        """Add Django's own options to a verb; otherwise they would have to precede the verb on the command line."""
        absent = argparse.SUPPRESS
        for flags, kwargs in (
            (("-v", "--verbosity"), {"type": int, "choices": [0, 1, 2, 3]}),
            (("--settings",), {}),
            (("--pythonpath",), {}),
            (("--traceback",), {"action": "store_true"}),
            (("--no-color",), {"action": "store_true"}),
            (("--force-color",), {"action": "store_true"}),
        ):
            parser.add_argument(*flags, default=absent, help=absent, **kwargs)

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
            owns_process=self._called_from_command_line,
        )
        try:
            BY_NAME[options["verb"]].run(console, options)
        except GraphileWorkerError as error:
            raise CommandError(str(error)) from error
        except OperationalError as error:
            raise CommandError(f"Expected an answer from the database, got an error: {error}") from error


def _add_usual_options(parser: CommandParser) -> None:
    parser.add_argument("--database", metavar="ALIAS", help="Use this database (default: the database of add_job).")
    parser.add_argument(
        "--installation", metavar="ALIAS", help="Use this installation, if GRAPHILE_WORKER names several."
    )
    parser.add_argument("--json", action="store_true", help="Write JSON, for programs.")


def _examples(verb: Verb) -> str:
    lines = [f"  manage.py graphile_worker {verb.name} {example}".rstrip() for example in verb.examples]
    return "\n".join(["examples:", *lines])


def _filled(text: str) -> str:
    return textwrap.fill(text, 78, break_on_hyphens=False)


def _suggest_verbs(parser: CommandParser) -> None:
    """Extend the error for an unknown verb by the most similar verb."""
    complain = parser.error

    def error(message: str) -> NoReturn:
        found = re.match(r"argument verb: invalid choice: '([^']*)'", message)
        if found:
            names = ", ".join(verb.name for verb in VERBS)
            message = f"expected a verb ({names}), got {found[1]!r}.{did_you_mean(found[1], BY_NAME)}"
        complain(message)
        raise AssertionError("a parser's error() does not return")

    parser.error = error  # type: ignore[method-assign]
