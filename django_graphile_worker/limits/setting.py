"""The setting ``LIMITS``: numbers that replace those of ``@task(limit=...)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.limits.numbers import NUMBERS, LimitNumbers
from django_graphile_worker.suggestions import did_you_mean

_EXPECTED = "a dict of names of limits and their numbers, {'account:{account}': {'concurrency': 5, 'rate': '100/m'}}"


# Pairs of a name and its numbers, which are pairs, too: a setting is a value that has a hash.
Overrides = tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]


class MistakenEntryError(Exception):
    """An entry of the setting cannot be used; the message is what was expected."""


def checked_overrides(value: Any) -> Overrides:
    """Return each name of a limit with its numbers; raise MistakenEntryError. None lifts a number."""
    if not isinstance(value, Mapping):
        raise MistakenEntryError(_EXPECTED)
    return tuple((_name(name), _numbers(name, numbers)) for name, numbers in value.items())


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise MistakenEntryError(_EXPECTED)
    return name


def _numbers(name: str, numbers: Any) -> tuple[tuple[str, Any], ...]:
    if not isinstance(numbers, Mapping):
        raise MistakenEntryError(f"{_EXPECTED} ({name!r} has {numbers!r})")
    for key in numbers:
        if key not in NUMBERS:
            way_out = did_you_mean(str(key).lower(), NUMBERS) or f"Known keys: {', '.join(NUMBERS)}."
            raise MistakenEntryError(f"{_EXPECTED} ({name!r} has the unknown key {key!r}. {way_out})")
    try:
        # A burst alone is compared with the rate of the task: `LimitNumbers.overridden`.
        LimitNumbers(**{key: number for key, number in numbers.items() if key != "burst" or "rate" in numbers})
    except (InvalidJobError, InvalidTypeError) as error:
        raise MistakenEntryError(f"{_EXPECTED} ({name!r}: {str(error).rstrip('.')})") from None
    return tuple(numbers.items())
