"""Values that JSON has no type for, read from the text or the number that stands for them."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable
from typing import Any

from django.utils.dateparse import parse_duration


def _only_text(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: parse(value) if isinstance(value, str) else None


def _decimal(value: Any) -> decimal.Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return decimal.Decimal(str(value))


def _duration(value: Any) -> datetime.timedelta | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.timedelta(seconds=value)
    return parse_duration(value) if isinstance(value, str) else None


# How each is read (None, or an error, where it cannot be), and what to call it.
PARSERS: dict[type, tuple[Callable[[Any], Any], str]] = {
    datetime.datetime: (_only_text(datetime.datetime.fromisoformat), "a date and time in ISO 8601"),
    datetime.date: (_only_text(datetime.date.fromisoformat), "a date in ISO 8601"),
    datetime.time: (_only_text(datetime.time.fromisoformat), "a time in ISO 8601"),
    datetime.timedelta: (_duration, "a duration (seconds, or as Django writes it)"),
    decimal.Decimal: (_decimal, "a decimal number"),
    uuid.UUID: (_only_text(uuid.UUID), "a UUID"),
}
