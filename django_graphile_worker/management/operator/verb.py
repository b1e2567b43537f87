"""The base classes of verbs, and the parser that is built of them."""

from __future__ import annotations

import argparse
import re
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

from django.core.management.base import CommandParser, DjangoHelpFormatter

from django_graphile_worker.management.operator.arguments import did_you_mean
from django_graphile_worker.management.operator.console import Console

Options = dict[str, Any]


class Verb(ABC):
    """A verb of ``manage.py graphile_worker``: its texts, its arguments and its action."""

    name: ClassVar[str]
    aliases: ClassVar[Sequence[str]] = ()
    # One line for the overview; the description has the details.
    summary: ClassVar[str]
    description: ClassVar[str] = ""
    # The arguments of each example, without the name of the verb.
    examples: ClassVar[Sequence[str]] = ("",)
    # Whether the verb takes --database, --installation and --json. The verb that runs a worker has options of its own.
    has_usual_options: ClassVar[bool] = True

    def add_arguments(self, parser: CommandParser) -> None:  # noqa: B027 - a verb may take nothing
        """Add the arguments of this verb, without the usual options."""

    @abstractmethod
    def run(self, console: Console, options: Options) -> None:
        """Perform the action, and write the result to the console."""


class VerbGroup(Verb):
    """A verb with verbs of its own, such as ``schedules list``; without one of them, the first is meant."""

    verbs: ClassVar[Sequence[Verb]]
    # The option that holds the verb of the group.
    dest: ClassVar[str] = "verb_of_group"

    def run(self, console: Console, options: Options) -> None:
        chosen = options.get(self.dest) or self.verbs[0].name
        by_name = {name: verb for verb in self.verbs for name in (verb.name, *verb.aliases)}
        by_name[chosen].run(console, options)


class HelpFormatter(DjangoHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """A formatter that has the order of options of Django, and keeps the lines of examples."""


def add_verbs(
    parser: CommandParser, verbs: Sequence[Verb], *, dest: str, is_required: bool = True, prefix: str = ""
) -> None:
    """Add a parser for each verb. ``prefix`` is the name of the group, with a space, if the verbs belong to a group."""
    _suggest_verbs(parser, verbs)
    parsers = parser.add_subparsers(dest=dest, metavar="verb", required=is_required, title="verbs")
    for verb in verbs:
        _add_verb(parsers, verb, prefix)


def _add_verb(parsers: Any, verb: Verb, prefix: str) -> None:
    added = parsers.add_parser(
        verb.name,
        aliases=verb.aliases,
        help=verb.summary,
        description=_filled(f"{verb.summary} {verb.description}".strip()),
        epilog=_examples(verb, f"{prefix}{verb.name}"),
        formatter_class=HelpFormatter,
    )
    verb.add_arguments(added)
    if isinstance(verb, VerbGroup):
        add_verbs(added, verb.verbs, dest=verb.dest, is_required=False, prefix=f"{verb.name} ")
    if verb.has_usual_options:
        _add_usual_options(added, is_in_group=bool(prefix))
    _add_django_options(added)


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


def _add_django_options(parser: CommandParser) -> None:
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


def _examples(verb: Verb, name: str) -> str:
    lines = [f"  manage.py graphile_worker {name} {example}".rstrip() for example in verb.examples]
    return "\n".join(["examples:", *lines])


def _filled(text: str) -> str:
    return textwrap.fill(text, 78, break_on_hyphens=False)


def _suggest_verbs(parser: CommandParser, verbs: Sequence[Verb]) -> None:
    """Extend the error for an unknown verb by the most similar verb."""
    complain = parser.error

    def error(message: str) -> NoReturn:
        found = re.match(r"argument verb: invalid choice: '([^']*)'", message)
        if found:
            names = ", ".join(verb.name for verb in verbs)
            known = [name for verb in verbs for name in (verb.name, *verb.aliases)]
            message = f"expected a verb ({names}), got {found[1]!r}.{did_you_mean(found[1], known)}"
        complain(message)
        raise AssertionError("a parser's error() does not return")

    parser.error = error  # type: ignore[method-assign]
