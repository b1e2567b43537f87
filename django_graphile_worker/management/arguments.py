"""The arguments of both commands, and their types, which raise ArgumentTypeError for a text that means nothing."""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from django_graphile_worker.crontab.times import EXPECTED_TIME_PHRASE, parse_time_phrase
from django_graphile_worker.text import quoted

LARGEST_ID = 2**63 - 1
LARGEST_NUMBER = 999_999_999
LONGEST_WAIT = 86_400
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Argument:
    """An argument of a command: its name or its flags. One without a ``metavar`` has choices, or is a switch."""

    def __init__(self, names: str, metavar: str, text: str, kind: Any = None, **more: Any) -> None:
        self.names = names.split()
        self.options = {"help": text, **more}
        if metavar:
            self.options |= {"metavar": metavar, "type": kind}
        elif "choices" not in more:
            self.options.setdefault("action", "store_true")

    @property
    def dest(self) -> str:
        return str(self.options.get("dest") or self.names[-1].removeprefix("--").replace("-", "_"))

    def add_to(self, parser: Any) -> None:
        parser.add_argument(*self.names, **self.options)


def number(smallest: float | None = None, kind: type[int] | type[float] = int) -> Callable[[str], Any]:
    """Return a type for numbers that are not too small."""
    lowest = -LARGEST_NUMBER if smallest is None else smallest
    highest = LARGEST_NUMBER if kind is int else math.inf

    def convert(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not lowest <= value <= highest:
            what = "a whole number" if kind is int else "a number of seconds"
            bound = "" if smallest is None else f" of at least {smallest}"
            raise ArgumentTypeError(f"expected {what}{bound}, got {quoted(text)}")
        return value

    return convert


def seconds(text: str) -> float:
    """Parse the seconds of a wait."""
    value = float(number(0.1, float)(text))
    if value > LONGEST_WAIT:
        raise ArgumentTypeError(f"expected a number of seconds of at most {LONGEST_WAIT}, got {quoted(text)}")
    return value


def pair(text: str) -> tuple[str, str]:
    """Parse a name and its value: ``tenant=acme``."""
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise ArgumentTypeError(f"expected NAME=VALUE, got {quoted(text)}")
    return name, value


def job_id(text: str) -> int:
    digits = text.removeprefix("#")
    if not re.fullmatch("[0-9]{1,19}", digits) or not 1 <= int(digits) <= LARGEST_ID:
        raise ArgumentTypeError(f"expected a job id, a number like 42, got {quoted(text)}")
    return int(digits)


def period(text: str) -> timedelta:
    """Parse a period like ``7d`` or ``1h30m``."""
    try:
        return parse_time_phrase(text)
    except ValueError:
        raise ArgumentTypeError(f"expected {EXPECTED_TIME_PHRASE}, got {quoted(text)}") from None


def iso_time(text: str, zone: tzinfo | None = None) -> datetime | None:
    """Return a time of ISO 8601, in the zone or the current time zone unless it names another; None if it is none."""
    try:
        moment = parse_datetime(f"{text}T00:00" if _DATE.fullmatch(text) else text)
    except ValueError:
        return None
    return timezone.make_aware(moment, zone) if moment is not None and timezone.is_naive(moment) else moment


def time(text: str, zone: tzinfo | None = None) -> datetime | timedelta:
    """Return a time, or for ``now`` and ``+5m`` the period from now to it."""
    if text == "now":
        return timedelta(0)
    try:
        moment = parse_time_phrase(text[1:]) if text.startswith("+") else iso_time(text, zone)
    except ValueError:
        moment = None
    if moment is None:
        raise ArgumentTypeError(
            f"expected 'now', a period like +5m or +1h30m, or a time like 2026-05-01T12:00, got {quoted(text)}"
        )
    return moment


def existing_file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise ArgumentTypeError(f"the file {text!r} does not exist")
    return path
