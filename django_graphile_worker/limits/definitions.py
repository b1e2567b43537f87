"""All limits of a project, with their numbers after the setting ``LIMITS``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.limits.numbers import LimitNumbers

if TYPE_CHECKING:
    from django_graphile_worker.limits.keys import LimitedTask
    from django_graphile_worker.limits.setting import Overrides


class LimitDefinition(Frozen):
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
