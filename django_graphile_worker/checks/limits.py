"""The check of limits: their numbers in the code and in the settings. Only projects with limits load it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's names

from django_graphile_worker import registry
from django_graphile_worker.checks.configuration import setting_name, valid_places
from django_graphile_worker.routing import Place
from django_graphile_worker.suggestions import did_you_mean

if TYPE_CHECKING:
    from django_graphile_worker.limits.limit import TaskLimit
    from django_graphile_worker.registry import Task


def limit_messages() -> list[CheckMessage]:
    """Return what is wrong with the numbers of limits: tasks that do not agree, and names in the setting."""
    found = _by_name()
    messages = [message for uses in found.values() for message in _check_numbers(uses)]
    return messages + [message for place in valid_places() for message in _check_setting(place, found)]


def _by_name() -> dict[str, list[tuple[Task[Any, Any], TaskLimit]]]:
    found: dict[str, list[tuple[Task[Any, Any], TaskLimit]]] = {}
    for task in registry.tasks:
        for limit in task.limits:
            found.setdefault(limit.name, []).append((task, limit))
    return found


def _check_numbers(uses: list[tuple[Task[Any, Any], TaskLimit]]) -> Iterator[CheckMessage]:
    first_task, first = uses[0]
    for task, limit in uses[1:]:
        if (limit.numbers, limit.is_fair) != (first.numbers, first.is_fair):
            yield Error(
                f"The limit {limit.name!r}: expected the same numbers in all its tasks, got {_told(first)} in "
                f"{first_task.identifier!r}, {first_task.place}, and {_told(limit)} in {task.identifier!r}, "
                f"{task.place}.",
                hint="Write the Limit once and use it in both tasks, or give one of them another name: "
                "Limit(..., name='...').",
                obj=task,
                id="graphile_worker.E022",
            )


def _told(limit: TaskLimit) -> str:
    return f"{limit.numbers}{', fair' if limit.is_fair else ''}"


def _check_setting(place: Place, found: dict[str, list[tuple[Task[Any, Any], TaskLimit]]]) -> Iterator[CheckMessage]:
    for name, numbers in place.settings.limits:
        setting = f'{setting_name(place, "LIMITS")}["{name}"]'
        if name not in found:
            close = did_you_mean(name, found)
            yield Warning(
                f"{setting}: expected the name of a limit, got {name!r}, which no task of this project has. "
                f"{close}".rstrip(),
                hint="The name of a limit is its name=, or its template, or the path of its function; without a key, "
                "the identifier of the task.",
                id="graphile_worker.W008",
            )
        elif not _fits(found[name][0][1], dict(numbers)):
            yield Error(
                f"{setting}: expected a burst of less than the rate, got {dict(numbers)!r} for the limit "
                f"{_told(found[name][0][1])}.",
                hint="Set the rate as well, or a smaller burst.",
                id="graphile_worker.E023",
            )


def _fits(limit: TaskLimit, numbers: dict[str, Any]) -> bool:
    """Return whether a burst that the setting has is of use with the rate that counts."""
    burst = numbers.get("burst")
    return burst is None or limit.numbers.overridden(numbers).burst is not None
