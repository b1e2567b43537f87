"""Checks of the registered tasks and of the crontab that names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's names

from django_graphile_worker import conf, registry, signatures
from django_graphile_worker.checks.configuration import setting_name, valid_places
from django_graphile_worker.exceptions import CrontabError, InvalidJobError, InvalidTypeError
from django_graphile_worker.job_options import valid_identifier
from django_graphile_worker.project_crontab import draft_schedule, is_any_written
from django_graphile_worker.registry import Task
from django_graphile_worker.routing import Place

if TYPE_CHECKING:
    from django_graphile_worker.crontab import CrontabMistake, Draft


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
        f"The task identifier {identifier!r}: expected one function, got {len(group)}: {places}.",
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
        signature = signatures.read(task.function)
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
    if not registry.tasks.has_limits and not any(place.settings.limits for place in valid_places()):
        return []
    # Late import: most projects have no limits.
    from django_graphile_worker.checks.limits import limit_messages

    return limit_messages()


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
        f"{setting_name(place, 'CRONTAB_FILE')}: expected a file that can be read, got "
        f"{str(place.settings.crontab_file)!r}: "
        f"{error.strerror or error}.",
        hint="Set the path of a readable file. A relative path starts at the directory of the command.",
        id="graphile_worker.E012",
    )
