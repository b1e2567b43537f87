"""A verb of ``manage.py graphile_worker``, the values that its arguments take, and the parser of all verbs."""

from __future__ import annotations

import argparse
import getpass
import re
import sys
import textwrap
from abc import ABC, abstractmethod
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any, NoReturn

from django.core.management.base import CommandError, CommandParser, DjangoHelpFormatter
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from django_graphile_worker.crontab.parser import Json5Error, parse_json5
from django_graphile_worker.crontab.times import EXPECTED_TIME_PHRASE, parse_time_phrase
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.text import did_you_mean as suggestion
from django_graphile_worker.text import quoted

LARGEST_ID = 2**63 - 1
EXPECTED_TIME = "'now', a period like +5m or +1h30m, or a time like 2026-05-01T12:00"
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

Options = dict[str, Any]


class Verb(ABC):
    """A verb of ``manage.py graphile_worker``: its texts, its arguments and its action."""

    name: str
    # One line for the overview; the description has the details.
    summary: str
    description: str = ""
    # The arguments of each example, without the name of the verb.
    examples: Sequence[str] = ("",)
    # Whether the verb takes --database, --installation and --json. The verb that runs a worker has options of its own.
    has_usual_options: bool = True

    def add_arguments(self, parser: CommandParser) -> None:  # noqa: B027 - a verb may take nothing
        """Add the arguments of this verb, without the usual options."""

    @abstractmethod
    def run(self, console: Console, options: Options) -> None:
        """Perform the action, and write the result to the console."""


class VerbGroup(Verb):
    """A verb with verbs of its own, such as ``schedules list``; without one of them, the first is meant."""

    verbs: Sequence[Verb]
    # The option that holds the verb of the group.
    dest: str = "verb_of_group"

    def run(self, console: Console, options: Options) -> None:
        chosen = options.get(self.dest) or self.verbs[0].name
        next(verb for verb in self.verbs if verb.name == chosen).run(console, options)


class HelpFormatter(DjangoHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """A formatter that has the order of options of Django, and keeps the lines of examples."""


def add_verbs(
    parser: CommandParser, verbs: Sequence[Verb], *, dest: str, is_required: bool = True, prefix: str = ""
) -> None:
    """Add a parser for each verb. ``prefix`` is the name of the group, with a space, if the verbs belong to a group."""
    _suggest_verbs(parser, [verb.name for verb in verbs])
    parsers = parser.add_subparsers(dest=dest, metavar="verb", required=is_required, title="verbs")
    for verb in verbs:
        calls = [f"  manage.py graphile_worker {prefix}{verb.name} {example}".rstrip() for example in verb.examples]
        added = parsers.add_parser(
            verb.name,
            help=verb.summary,
            description=textwrap.fill(f"{verb.summary} {verb.description}".strip(), 78, break_on_hyphens=False),
            epilog="\n".join(["examples:", *calls]),
            formatter_class=HelpFormatter,
        )
        verb.add_arguments(added)
        if isinstance(verb, VerbGroup):
            add_verbs(added, verb.verbs, dest=verb.dest, is_required=False, prefix=f"{verb.name} ")
        if verb.has_usual_options:
            _add_usual_options(added, is_in_group=bool(prefix))
        _add_django_options(added)


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


def _add_django_options(parser: CommandParser) -> None:
    """Add Django's own options to a verb; otherwise they would have to precede the verb on the command line."""
    absent = argparse.SUPPRESS
    parser.add_argument("-v", "--verbosity", type=int, choices=[0, 1, 2, 3], default=absent, help=absent)
    for name in ("--settings", "--pythonpath"):
        parser.add_argument(name, default=absent, help=absent)
    for name in ("--traceback", "--no-color", "--force-color"):
        parser.add_argument(name, action="store_true", default=absent, help=absent)


# Types of arguments.


def _type(name: str, parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from error

    convert.__name__ = name
    return convert


def _job_id(text: str) -> int:
    number = text.removeprefix("#")
    if not re.fullmatch("[0-9]{1,19}", number) or not 1 <= int(number) <= LARGEST_ID:
        raise ValueError(f"expected a job id, a number like 42, got {quoted(text)}")
    return int(number)


def whole_number(text: str, smallest: int | None = None) -> int:
    number = int(text) if re.fullmatch("[+-]?[0-9]{1,9}", text) else None
    if number is None or (smallest is not None and number < smallest):
        bound = "" if smallest is None else f" of at least {smallest}"
        raise ValueError(f"expected a whole number{bound}, got {quoted(text)}")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.1 <= number <= 86_400:
        raise ValueError(f"expected a number of seconds from 0.1 to 86400, got {quoted(text)}")
    return number


def _period(text: str) -> timedelta:
    """Parse a period like ``7d`` or ``1h30m``."""
    try:
        return parse_time_phrase(text)
    except ValueError:
        raise ValueError(f"expected {EXPECTED_TIME_PHRASE}, got {quoted(text)}") from None


def parse_iso(text: str, zone: tzinfo | None = None) -> datetime | None:
    """Return a time of ISO 8601, in the zone or the current time zone unless it names another; None if it is none."""
    try:
        moment = parse_datetime(f"{text}T00:00" if _DATE.fullmatch(text) else text)
    except ValueError:
        return None
    return timezone.make_aware(moment, zone) if moment is not None and timezone.is_naive(moment) else moment


def parse_time(text: str, zone: tzinfo | None = None) -> datetime | timedelta:
    """Return a time, or for ``now`` and ``+5m`` the period from now to it; raise ValueError for other texts."""
    if text == "now":
        return timedelta(0)
    try:
        moment = parse_time_phrase(text[1:]) if text.startswith("+") else parse_iso(text, zone)
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError(f"expected {EXPECTED_TIME}, got {quoted(text)}")
    return moment


job_id: Callable[[str], int] = _type("job id", _job_id)
whole: Callable[[str], int] = _type("number", whole_number)
positive: Callable[[str], int] = _type("number", lambda text: whole_number(text, 1))
not_negative: Callable[[str], int] = _type("number", lambda text: whole_number(text, 0))
seconds: Callable[[str], float] = _type("seconds", _seconds)
period: Callable[[str], timedelta] = _type("period", _period)
run_at: Callable[[str], datetime | timedelta] = _type("time", parse_time)


def add_limit(parser: CommandParser, noun: str, *, default: int = 50) -> None:
    """Add the option that limits a list."""
    parser.add_argument(
        "--limit", type=positive, default=default, metavar="N", help=f"List at most N {noun} (default: {default})."
    )


def add_by(parser: CommandParser) -> None:
    """Add the option that names who makes a change."""
    parser.add_argument("--by", metavar="NAME", help="The name to record (default: the user of this process).")


def name_of_user(options: Options) -> str:
    """Return the name that is recorded; empty if the process runs under a number that no user has, as in containers."""
    if options.get("by") is not None:
        return str(options["by"])
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def payload_from(text: str | None) -> Any:
    """Parse a payload as JSON, or as JSON5 if it is not JSON; read it from standard input if the text is ``-``."""
    if text is None:
        return None
    source = "payload" if text != "-" else "payload from standard input"
    if text == "-":
        text = sys.stdin.read()
    try:
        return parse_json5(text)
    except RecursionError:
        raise CommandError(f"{source}: the value is nested too deeply.") from None
    except Json5Error as error:
        raise CommandError(
            f"{source}: expected JSON or JSON5 (quoted for the shell, like '{{\"order\": 1}}'), "
            f"got {quoted(text)}: {error}."
        ) from None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion for a mistyped name, to append to a sentence; empty when there is none."""
    hint = suggestion(name, known)
    return f" {hint}" if hint else ""
