"""Converters of single values, also to types that are a string or a number in JSON."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable
from typing import Any

from django.utils.dateparse import parse_duration

from django_graphile_worker.worker.typed_payloads.errors import JSON_NAMES, Converter, misfit, other_value


def anything(value: Any, path: str) -> Any:
    return value


def instance_of(kind: type) -> Converter:
    accepted: tuple[type, ...] = (int, float) if kind is float else (kind,)

    def convert(value: Any, path: str) -> Any:
        # In Python, True and False are numbers; in JSON they are not.
        is_bool_for_number = isinstance(value, bool) and kind in (int, float)
        if not isinstance(value, accepted) or is_bool_for_number:
            raise misfit(path, JSON_NAMES.get(kind, kind.__name__), value)
        return value

    return convert


def parsed_by(parse: Callable[[Any], Any], expected: str) -> Converter:
    def convert(value: Any, path: str) -> Any:
        try:
            parsed = parse(value)
        except (ValueError, TypeError, ArithmeticError):
            parsed = None
        if parsed is None:
            raise misfit(path, expected, value, other_value(value))
        return parsed

    return convert


def one_of(choices: tuple[Any, ...]) -> Converter:
    def convert(value: Any, path: str) -> Any:
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            raise misfit(path, f"one of {', '.join(map(repr, choices))}", value, other_value(value))
        return value

    return convert


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


# For each class: the function that parses a value (it returns None, or raises, if it cannot), and its name in messages.
PARSERS: dict[type, tuple[Callable[[Any], Any], str]] = {
    datetime.datetime: (_only_text(datetime.datetime.fromisoformat), "a date and time in ISO 8601"),
    datetime.date: (_only_text(datetime.date.fromisoformat), "a date in ISO 8601"),
    datetime.time: (_only_text(datetime.time.fromisoformat), "a time in ISO 8601"),
    datetime.timedelta: (_duration, "a duration (seconds, or as Django writes it)"),
    decimal.Decimal: (_decimal, "a decimal number"),
    uuid.UUID: (_only_text(uuid.UUID), "a UUID"),
}
