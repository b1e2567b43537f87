"""Converters of settings: each checks one kind of value, and returns the value in the form that the code uses."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from django_graphile_worker.limits import InvalidEntryError, checked_overrides
from django_graphile_worker.text import did_you_mean

MAX_DURATION = timedelta(days=3650).total_seconds()
# The shortest time limit of a task, in seconds.
MIN_TIMEOUT = 0.1
LARGEST_NUMBER = 2**31 - 1

ForbiddenFlags = tuple[str, ...] | Callable[[], Iterable[str]] | str
Convert = Callable[[Any], Any]


class ExpectationError(Exception):
    """A value is not of the expected kind; the message is what was expected.

    ``key`` is the key of a value inside the setting, and ``got`` that value, in the form in which it may be shown.
    """

    def __init__(self, expected: str, *, key: str = "", got: str = "") -> None:
        super().__init__(expected)
        self.key = key
        self.got = got


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ExpectationError("a non-empty string")
    return value


def optional_token(value: Any) -> str | None:
    """Convert a secret that clients send in a header. An error does not show it."""
    if value is None:
        return None
    is_text = isinstance(value, str) and value != ""
    if is_text and value.isascii() and value.isprintable() and " " not in value:
        return str(value)
    got = "one with other characters" if is_text else ""
    raise ExpectationError("None, or a non-empty string of ASCII letters, digits and symbols", got=got)


def optional_address(value: Any) -> tuple[str, int] | None:
    """Convert a port, or a text "host:port", to host and port; an empty host stands for all addresses."""
    if value is None:
        return None
    host, _, port = str(value).rpartition(":")
    is_valid = isinstance(value, int | str) and not isinstance(value, bool) and port.isdecimal() and port.isascii()
    if not is_valid or not 1 <= int(port) <= 65535:
        raise ExpectationError("None, a port from 1 to 65535, or a text like '127.0.0.1:9808'")
    return host.strip("[]"), int(port)


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


MAIL_ADMINS, TASK_PREFIX = "mail_admins", "task:"


def _destinations(value: Any) -> tuple[str, ...]:
    found = strings([value] if isinstance(value, str) else value)
    for each in found:
        if not (each == MAIL_ADMINS or each.removeprefix(TASK_PREFIX) not in ("", each) or _is_url(each)):
            # The address of a webhook is a secret.
            got = repr(each if len(each) <= 20 else f"{each[:12]}…")
            raise ExpectationError('"mail_admins", the URL of a webhook, or "task:" and a task identifier', got=got)
    if not found:
        raise ExpectationError('"mail_admins", URLs of webhooks, or "task:" and a task identifier', got="none")
    return found


def _is_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and value.isprintable() and " " not in value
    except ValueError:
        return False


def _or_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _alert_setting(default: Any, convert: Convert) -> Any:
    return field(default=default, metadata={"convert": convert})


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """The checked setting ALERTS; a condition that is None or False is not judged. Durations are seconds."""

    # Secrets: a URL of a webhook lets anybody who knows it write there.
    to: tuple[str, ...] = field(repr=False, metadata={"convert": _destinations})
    interval: float = _alert_setting(60.0, duration(1))
    repeat: float = _alert_setting(3600.0, duration(1))
    permanently_failed: bool | None = _alert_setting(True, _or_none(boolean))
    new_error: bool | None = _alert_setting(True, _or_none(boolean))
    # How many times as many jobs as usual.
    more_errors: int | None = _alert_setting(10, _or_none(whole_number(2)))
    oldest_ready: float | None = _alert_setting(300.0, optional_duration(1))
    no_worker: float | None = _alert_setting(300.0, optional_duration(1))
    schedules: bool | None = _alert_setting(True, _or_none(boolean))
    paused: float | None = _alert_setting(3600.0, optional_duration(1))
    old_transaction: float | None = _alert_setting(3600.0, optional_duration(1))
    # Patterns for names of tasks, schedules, and what is paused.
    ignore: tuple[str, ...] = _alert_setting((), strings)


_ALERT_CONVERTERS: dict[str, Convert] = {each.name.upper(): each.metadata["convert"] for each in fields(AlertSettings)}


def alerts(value: Any) -> AlertSettings | None:
    """Convert the setting ALERTS: a dict, or only its key TO."""
    if value is None or isinstance(value, AlertSettings):
        return value
    entries = value if isinstance(value, dict) else {"TO": value}
    values: dict[str, Any] = {}
    for key, each in entries.items():
        if key not in _ALERT_CONVERTERS:
            way_out = did_you_mean(str(key).upper(), _ALERT_CONVERTERS)
            expected = f"a known key ({way_out or ', '.join(_ALERT_CONVERTERS)})"
            raise ExpectationError(expected, got=repr(key))
        try:
            values[key.lower()] = _ALERT_CONVERTERS[key](each)
        except ExpectationError as expected:
            place = key if isinstance(value, dict) else ""
            got = expected.got or (type(each).__name__ if key == "TO" else repr(each))
            raise ExpectationError(str(expected), key=place, got=got) from None
    if "to" not in values:
        raise ExpectationError('a dict with the key "TO"', got=f"the keys {list(entries)}")
    return AlertSettings(**values)
