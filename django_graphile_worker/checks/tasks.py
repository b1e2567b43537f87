"""Checks of the registered tasks, of their limits, and of the crontab that names them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's names

from django_graphile_worker import conf, registry, task_functions
from django_graphile_worker.checks.configuration import setting_name, valid_places
from django_graphile_worker.crontab import CrontabMistake, Draft
from django_graphile_worker.exceptions import CrontabError, InvalidJobError, InvalidTypeError
from django_graphile_worker.job_options import valid_identifier
from django_graphile_worker.limits import TaskLimit
from django_graphile_worker.recurring import draft_schedule, is_any_written
from django_graphile_worker.registry import Task
from django_graphile_worker.routing import Place
from django_graphile_worker.text import did_you_mean

# A limit, and a task that has it.
Use = tuple[Task[Any, Any], TaskLimit]


def check_tasks(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that each identifier is valid and belongs to one function, and that a worker can call the function."""
    messages = [_duplicate_identifier(group) for group in registry.tasks.duplicates]
    for task in registry.tasks:
        messages += [*_check_identifier(task), *_check_signature(task)]
    return messages


def _duplicate_identifier(group: tuple[Task[Any, Any], ...]) -> CheckMessage:
    identifier = group[0].identifier
    places = " and ".join(task.place for task in group)
    return Error(
        f"{len(group)} functions have the task identifier {identifier!r}: {places}.",
        hint=f'Give each function its own identifier: @task("billing:{identifier}").',
        obj=group[1],
        id="graphile_worker.E008",
    )


def _check_identifier(task: Task[Any, Any]) -> list[CheckMessage]:
    try:
        valid_identifier(task.identifier)
    except InvalidJobError as error:
        return [
            Error(
                f"The task {task.place}: {error}",
                hint='Choose a shorter identifier: @task("billing:send").',
                obj=task,
                id="graphile_worker.E009",
            )
        ]
    return []


def _check_signature(task: Task[Any, Any]) -> list[CheckMessage]:
    try:
        signature = task_functions.read_signature(task.function)
    except InvalidTypeError as error:
        return [
            Error(
                f"The task {task.identifier!r}, {task.place}: {error}",
                hint="A job has one payload, any JSON value: def send(payload): ... payload['order'] ...",
                obj=task,
                id="graphile_worker.E017",
            )
        ]
    helpers = signature.helpers
    return [_mistaken_helpers(task, helpers.name)] if helpers and signature.may_mistake_helpers else []


def _mistaken_helpers(task: Task[Any, Any], name: str) -> CheckMessage:
    return Warning(
        f"The task {task.identifier!r}, {task.place}: the second parameter, {name!r}, receives the worker's helpers, "
        "not a part of the payload.",
        hint="If intended, name it helpers or annotate it with Helpers. If not, move its value into the payload.",
        obj=task,
        id="graphile_worker.W004",
    )


def check_limits(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that tasks that share a limit give it the same numbers, and that the setting names limits that exist."""
    uses_by_name: dict[str, list[Use]] = {}
    for task in registry.tasks:
        for limit in task.limits:
            uses_by_name.setdefault(limit.name, []).append((task, limit))
    messages = [message for uses in uses_by_name.values() for message in _check_numbers(uses)]
    return messages + [message for place in valid_places() for message in _check_limits_of(place, uses_by_name)]


def _check_numbers(uses: list[Use]) -> Iterator[CheckMessage]:
    first_task, first = uses[0]
    for task, limit in uses[1:]:
        if (limit.numbers, limit.is_fair) != (first.numbers, first.is_fair):
            yield Error(
                f"The limit {limit.name!r} has different numbers in its tasks: {_numbers_of(first)} in "
                f"{first_task.identifier!r}, {first_task.place}, and {_numbers_of(limit)} in {task.identifier!r}, "
                f"{task.place}.",
                hint="Write the Limit once and use it in both tasks, or give one of them another name: "
                "Limit(..., name='...').",
                obj=task,
                id="graphile_worker.E022",
            )


def _numbers_of(limit: TaskLimit) -> str:
    return f"{limit.numbers}{', fair' if limit.is_fair else ''}"


def _check_limits_of(place: Place, uses_by_name: dict[str, list[Use]]) -> Iterator[CheckMessage]:
    for name, numbers in place.settings.limits:
        setting = f'{setting_name(place, "LIMITS")}["{name}"]'
        if name not in uses_by_name:
            close = did_you_mean(name, uses_by_name)
            yield Warning(
                f"{setting}: no task of this project has a limit {name!r}. {close}".rstrip(),
                hint="The name of a limit is its name=, or its template, or the path of its function; without a key, "
                "the identifier of the task.",
                id="graphile_worker.W008",
            )
        elif not _fits(uses_by_name[name][0][1], dict(numbers)):
            yield Error(
                f"{setting}: the burst is not less than the rate: {dict(numbers)!r} for the limit "
                f"{_numbers_of(uses_by_name[name][0][1])}.",
                hint="Set the rate as well, or a smaller burst.",
                id="graphile_worker.E023",
            )


def _fits(limit: TaskLimit, numbers: dict[str, Any]) -> bool:
    """Return whether a burst that the setting has is of use with the rate that counts."""
    burst = numbers.get("burst")
    return burst is None or limit.numbers.overridden(numbers).burst is not None


def check_crontab(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check the crontab items of every source, and that the tasks that they name exist."""
    return [message for place in valid_places() for message in _check_crontab_of(place)]


def _check_crontab_of(place: Place) -> list[CheckMessage]:
    settings, with_tasks = place.settings, place.installation == conf.DEFAULT
    if not is_any_written(settings, with_tasks=with_tasks):
        return []
    try:
        draft = draft_schedule(settings, with_tasks=with_tasks)
    except OSError as error:
        return [_unreadable_file(place, error)]
    mistakes = _mistakes_of(draft)
    known = len(draft.mistakes)
    draft.refuse_unknown_tasks(registry.tasks, registry.tasks.identifiers())
    unknown = draft.mistakes[known:]
    return [_crontab_message(mistake) for mistake in mistakes] + [_unknown_task(found) for found in unknown]


def _mistakes_of(draft: Draft) -> tuple[CrontabMistake, ...]:
    try:
        draft.finish()
    except CrontabError as error:
        return error.mistakes
    return ()


def _crontab_message(mistake: CrontabMistake) -> CheckMessage:
    hint = "Correct the crontab. Until then, none of its items is scheduled."
    return Error(str(mistake), hint=hint, id="graphile_worker.E012")


def _unknown_task(mistake: CrontabMistake) -> CheckMessage:
    hint = "Correct the name, or define the task in the tasks.py of an installed app."
    return Error(str(mistake), hint=hint, id="graphile_worker.E013")


def _unreadable_file(place: Place, error: OSError) -> CheckMessage:
    return Error(
        f"{setting_name(place, 'CRONTAB_FILE')}: {str(place.settings.crontab_file)!r} cannot be read: "
        f"{error.strerror or error}.",
        hint="Set the path of a readable file. A relative path starts at the directory of the command.",
        id="graphile_worker.E012",
    )
