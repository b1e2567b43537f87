"""Converters of settings: each checks one kind of value, and returns the value in the form that the code uses."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from django_graphile_worker.limits import InvalidEntryError, checked_overrides

MAX_DURATION = timedelta(days=3650).total_seconds()
# The shortest time limit of a task, in seconds.
MIN_TIMEOUT = 0.1
LARGEST_NUMBER = 2**31 - 1

ForbiddenFlags = tuple[str, ...] | Callable[[], Iterable[str]] | str
Convert = Callable[[Any], Any]


class ExpectationError(Exception):
    """A value is not of the expected kind; the message is what was expected."""


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ExpectationError("a non-empty string")
    return value


def time_zone(value: Any) -> str:
    try:
        return ZoneInfo(text(value)).key
    except (ExpectationError, KeyError, ValueError, OSError):
        raise ExpectationError("the name of an IANA time zone like 'Europe/Paris'") from None


def schema_name(value: Any) -> str:
    expected = (
        "a schema name of letters, digits and underscores that does not begin with a digit (at most 63 characters)"
    )
    if not isinstance(value, str) or not (value.isascii() and value.isidentifier() and len(value) <= 63):
        raise ExpectationError(expected)
    if value.lower().startswith("pg_") or value in {"information_schema", "public"}:
        raise ExpectationError("a schema that is neither public nor one of PostgreSQL's own")
    return value


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ExpectationError("True or False")
    return value


def whole_number(smallest: int, largest: int = LARGEST_NUMBER) -> Convert:
    def convert(value: Any) -> int:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not smallest <= value <= largest:
            limits = f"of at least {smallest}" if largest == LARGEST_NUMBER else f"from {smallest} to {largest}"
            raise ExpectationError(f"a whole number {limits}")
        return int(value)

    return convert


def duration(smallest: float = 0.0, largest: float = MAX_DURATION) -> Convert:
    """Return a converter of seconds, or of a timedelta, to seconds."""

    def convert(value: Any) -> float:
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not math.isfinite(seconds) or not smallest <= seconds <= largest:
            least = f"of at least {smallest:g} seconds" if smallest else "of zero or more"
            most = "ten years" if largest == MAX_DURATION else f"{largest:g} seconds (not milliseconds)"
            raise ExpectationError(f"a number of seconds or a timedelta, {least} and at most {most}")
        return float(seconds)

    return convert


def optional(convert_value: Convert) -> Convert:
    """Return a converter that also takes None."""

    def convert(value: Any) -> Any:
        try:
            return None if value is None else convert_value(value)
        except ExpectationError as expected:
            raise ExpectationError(f"None, or {expected}") from None

    return convert


def optional_duration(smallest: float = 0.0) -> Convert:
    """Return a converter like ``duration()`` that also takes None."""
    return optional(duration(smallest))


def strings(value: Any) -> tuple[str, ...]:
    is_sequence = isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes)
    if not is_sequence or not all(isinstance(item, str) and item for item in value):
        raise ExpectationError("a list of non-empty strings")
    return tuple(value)


def dotted_paths(value: Any) -> tuple[str, ...]:
    paths = strings(value)
    if not all(_is_dotted_path(path) for path in paths):
        raise ExpectationError("a list of dotted paths like 'shop.jobs.middleware'")
    return paths


def forbidden_flags(value: Any) -> ForbiddenFlags:
    if callable(value):
        return value  # type: ignore[no-any-return]
    if isinstance(value, str) and _is_dotted_path(value):
        return value
    try:
        return strings(value)
    except ExpectationError:
        raise ExpectationError("a list of flags, a callable, or the dotted path of a callable") from None


def backoff(value: Any) -> Any:
    """Convert a delay to seconds; a function, or its dotted path, stays as it is."""
    if value is None or callable(value) or (isinstance(value, str) and _is_dotted_path(value)):
        return value
    try:
        return duration()(value)
    except ExpectationError as expected:
        raise ExpectationError(f"None, a function, the dotted path of a function, or {expected}") from None


def is_exception_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def exceptions(value: Any) -> tuple[Any, ...]:
    """Check exception classes and dotted paths; the paths stay as they are, because settings must not import apps."""
    is_list = isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes)
    if not is_list or not all(
        is_exception_class(each) or (isinstance(each, str) and _is_dotted_path(each)) for each in value
    ):
        raise ExpectationError("a list of exception classes, or of their dotted paths")
    return tuple(value)


def function(value: Any) -> Any:
    if value is None or callable(value) or (isinstance(value, str) and _is_dotted_path(value)):
        return value
    raise ExpectationError("a function, the dotted path of a function, or None")


def limits(value: Any) -> tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]:
    """Convert the numbers of limits, ``{"account:{account}": {"concurrency": 5}}``, to pairs."""
    if value == {}:
        return ()
    try:
        return checked_overrides(value)
    except InvalidEntryError as error:
        raise ExpectationError(str(error)) from None


def _is_dotted_path(value: str) -> bool:
    parts = value.split(".")
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


def crontab(value: Any) -> str | tuple[Any, ...]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple):
        raise ExpectationError("crontab text, or a list of crontab lines and CronItems")
    return tuple(value)


def path(value: Any) -> Path | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str | os.PathLike):
        raise ExpectationError("a path, or None")
    return Path(value)


def one_of(*choices: str) -> Convert:
    def convert(value: Any) -> str:
        if value not in choices:
            raise ExpectationError(" or ".join(map(repr, choices)))
        return str(value)

    return convert


def patterns(value: Any) -> tuple[re.Pattern[str], ...]:
    expected = "a list of regular expressions"
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ExpectationError(expected)
    try:
        return tuple(item if isinstance(item, re.Pattern) else re.compile(item, re.IGNORECASE) for item in value)
    except (re.error, TypeError) as error:
        raise ExpectationError(f"{expected} ({error})") from None
