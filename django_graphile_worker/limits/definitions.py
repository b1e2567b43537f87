"""All limits of a project, with their numbers after the setting ``LIMITS``, which replaces those of the code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.limits.numbers import NUMBERS, LimitNumbers
from django_graphile_worker.suggestions import did_you_mean

if TYPE_CHECKING:
    from django_graphile_worker.limits.keys import LimitedTask

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitDefinition:
    """A limit by its name: the numbers, and the tasks that have it."""

    name: str
    numbers: LimitNumbers
    # Whether the keys of the limit take turns.
    is_fair: bool
    tasks: tuple[str, ...]


def definitions(tasks: Iterable[LimitedTask], overrides: Overrides) -> tuple[LimitDefinition, ...]:
    """Return the limits of the tasks, sorted by name; ``overrides`` is the setting ``LIMITS``.

    A system check reports tasks that give one limit different numbers. The first task counts then.
    """
    changes = {name: dict(numbers) for name, numbers in overrides}
    found: dict[str, LimitDefinition] = {}
    for task in tasks:
        for limit in task.limits:
            known = found.get(limit.name)
            found[limit.name] = LimitDefinition(
                name=limit.name,
                numbers=known.numbers if known else limit.numbers.overridden(changes.get(limit.name, {})),
                is_fair=known.is_fair if known else limit.is_fair,
                tasks=(*(known.tasks if known else ()), task.identifier),
            )
    return tuple(found[name] for name in sorted(found))
