"""The base class of a verb of ``manage.py graphile_worker``, and the parser of all verbs."""

from __future__ import annotations

import argparse
import getpass
import re
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from django.core.management.base import CommandParser, DjangoHelpFormatter

from django_graphile_worker.management.arguments import Argument, number
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.text import did_you_mean as suggestion

Options = dict[str, Any]


class Verb(ABC):
    """A verb of ``manage.py graphile_worker``: its texts, its arguments and its action."""

    name: str
    # One line for the overview; the description has the details.
    summary: str
    description: str = ""
    # The arguments of each example, without the name of the verb.
    examples: Sequence[str] = ("",)
    # Without the options that all verbs have. Of those in a tuple, a call has at most one.
    arguments: Sequence[Argument | tuple[Argument, ...]] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        for each in self.arguments:
            group = parser.add_mutually_exclusive_group() if isinstance(each, tuple) else parser
            for argument in each if isinstance(each, tuple) else (each,):
                argument.add_to(group)

    @abstractmethod
    def run(self, console: Console, options: Options) -> None:
        """Perform the action, and write the result to the console."""


class VerbGroup(Verb):
    """A verb with verbs of its own, such as ``schedules list``; without one of them, the first is meant."""

    verbs: Sequence[Verb]

    def run(self, console: Console, options: Options) -> None:
        chosen = options.get("verb_of_group") or self.verbs[0].name
        next(verb for verb in self.verbs if verb.name == chosen).run(console, options)


class HelpFormatter(DjangoHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """A formatter that has the order of options of Django, and keeps the lines of examples."""


def add_verbs(parser: CommandParser, verbs: Sequence[Verb], group: VerbGroup | None = None) -> None:
    """Add a parser for each verb, of those of the command or of those of a group."""
    _suggest_verbs(parser, [verb.name for verb in verbs])
    parsers = parser.add_subparsers(
        dest="verb_of_group" if group else "verb", metavar="verb", required=group is None, title="verbs"
    )
    command = f"manage.py graphile_worker {group.name}" if group else "manage.py graphile_worker"
    for verb in verbs:
        added = parsers.add_parser(
            verb.name,
            help=verb.summary,
            description=textwrap.fill(f"{verb.summary} {verb.description}".strip(), 78, break_on_hyphens=False),
            epilog="\n".join(["examples:", *(f"  {command} {verb.name} {each}".rstrip() for each in verb.examples)]),
            formatter_class=HelpFormatter,
        )
        verb.add_arguments(added)
        if isinstance(verb, VerbGroup):
            add_verbs(added, verb.verbs, verb)
        _add_usual_options(added, is_in_group=group is not None)


def _suggest_verbs(parser: CommandParser, names: Sequence[str]) -> None:
    """Extend the error for an unknown verb by the most similar verb."""
    complain = parser.error

    def error(message: str) -> NoReturn:
        found = re.match(r"argument verb: invalid choice: '([^']*)'", message)
        if found:
            message = f"expected a verb ({', '.join(names)}), got {found[1]!r}.{did_you_mean(found[1], names)}"
        complain(message)
        raise AssertionError("a parser's error() does not return")

    parser.error = error  # type: ignore[method-assign]


def _add_usual_options(parser: CommandParser, *, is_in_group: bool) -> None:
    # A verb of a group must not reset what was written before its name: "schedules --json list".
    kept: Any = {"default": argparse.SUPPRESS} if is_in_group else {}
    parser.add_argument(
        "--database", metavar="ALIAS", help="Use this database (default: the database of add_job).", **kept
    )
    parser.add_argument(
        "--installation", metavar="ALIAS", help="Use this installation, if GRAPHILE_WORKER names several.", **kept
    )
    parser.add_argument("--json", action="store_true", help="Write JSON, for programs.", **kept)
    # Django's own options; otherwise they would have to precede the verb on the command line.
    absent = argparse.SUPPRESS
    parser.add_argument("-v", "--verbosity", type=int, choices=[0, 1, 2, 3], default=absent, help=absent)
    for name in ("--settings", "--pythonpath"):
        parser.add_argument(name, default=absent, help=absent)
    for name in ("--traceback", "--no-color", "--force-color"):
        parser.add_argument(name, action="store_true", default=absent, help=absent)


BY = Argument("--by", "NAME", "The name to record (default: the user of this process).")


def limit_of(noun: str, default: int = 50) -> Argument:
    """Return the option that limits a list."""
    return Argument("--limit", "N", f"List at most N {noun} (default: {default}).", number(1), default=default)


def name_of_user(options: Options) -> str:
    """Return the name that is recorded; empty if the process runs under a number that no user has, as in containers."""
    if options.get("by") is not None:
        return str(options["by"])
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion for a mistyped name, to append to a sentence; empty when there is none."""
    hint = suggestion(name, known)
    return f" {hint}" if hint else ""
