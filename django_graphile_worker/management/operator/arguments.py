"""Converts the arguments of the command line to the values that the API takes."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from django_graphile_worker.crontab.parser import Json5Error, parse_json5
from django_graphile_worker.crontab.times import EXPECTED_TIME_PHRASE, parse_time_phrase
from django_graphile_worker.job_options import JobOption, Kind
from django_graphile_worker.text import did_you_mean as suggestion
from django_graphile_worker.text import quoted

LARGEST_ID = 2**63 - 1
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _option(name: str, parse: Callable[[str], Any]) -> Callable[[str], Any]:
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


def _positive(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        raise ValueError(f"expected a whole number of at least 1, got {quoted(text)}")
    return int(text)


def _whole(text: str) -> int:
    if not re.fullmatch("[+-]?[0-9]{1,9}", text):
        raise ValueError(f"expected a whole number, got {quoted(text)}")
    return int(text)


def _not_negative(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise ValueError(f"expected a whole number, zero or more, got {quoted(text)}")
    return int(text)


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


def _run_at(text: str) -> datetime | timedelta:
    """Parse ``now``, ``+5m`` from now, or a time in ISO 8601 (in the current time zone unless it names another)."""
    if text == "now":
        return timedelta(0)
    try:
        if text.startswith("+"):
            return parse_time_phrase(text[1:])
        moment = parse_datetime(f"{text}T00:00" if _DATE.fullmatch(text) else text)
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError(
            f"expected 'now', a period like +5m or +1h30m, or a time like 2026-05-01T12:00, got {quoted(text)}"
        )
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


job_id: Callable[[str], int] = _option("job id", _job_id)
positive: Callable[[str], int] = _option("number", _positive)
whole: Callable[[str], int] = _option("number", _whole)
not_negative: Callable[[str], int] = _option("number", _not_negative)
seconds: Callable[[str], float] = _option("seconds", _seconds)
period: Callable[[str], timedelta] = _option("period", _period)
run_at: Callable[[str], datetime | timedelta] = _option("time", _run_at)


def add_limit(parser: CommandParser, noun: str, *, default: int) -> None:
    """Add the option that limits a list."""
    parser.add_argument(
        "--limit", type=positive, default=default, metavar="N", help=f"List at most N {noun} (default: {default})."
    )


def add_by(parser: CommandParser) -> None:
    """Add the option that names who makes a change."""
    parser.add_argument("--by", metavar="NAME", help="The name to record (default: the user of this process).")


def of_option(option: JobOption) -> dict[str, Any]:
    """Return how argparse takes an option of a job."""
    match option.kind:
        case Kind.CHOICE:
            return {"choices": [value for value, _ in option.choices]}
        case Kind.TEXTS:
            return {"metavar": option.metavar, "action": "append"}
        case Kind.NUMBER:
            return {"metavar": option.metavar, "type": whole}
        case Kind.TIME:
            return {"metavar": option.metavar, "type": run_at}
        case Kind.TEXT:
            return {"metavar": option.metavar}


def payload(text: str | None) -> Any:
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
