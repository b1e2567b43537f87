"""Checks of the schedules in a database: their tasks, their times, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Warning  # noqa: A004 - Django's name

from django_graphile_worker import conf, project_crontab, registry
from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.models.schedule_tasks import find_task
from django_graphile_worker.schedules.validation import mistakes_in
from django_graphile_worker.sql.install import catalog
from django_graphile_worker.sql.schedules import summaries
from django_graphile_worker.suggestions import did_you_mean

# How many messages of each kind are returned, and how many names one message lists.
MOST_MESSAGES = 20
MOST_LISTED = 10


def check_schedules(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    """Check that the schedules can fire: each has a task and times that this project can read."""
    if "_private_schedules" not in catalog.relations(cursor, schema=schema):
        return []
    unknown = [named for named in summaries.named_tasks(cursor, schema=schema) if find_task(named.task) is None]
    messages: list[CheckMessage] = [_unknown_task(named, alias) for named in unknown[:MOST_MESSAGES]]
    messages += _check_times(cursor, alias, schema)
    return messages + _check_names(cursor, alias, schema)


def _check_times(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for named in summaries.named_times(cursor, schema=schema):
        values = {"time_zone": named.time_zone, "cron": named.cron}
        mistakes = mistakes_in(values if named.cron is not None else values | {"interval": "1 s"})
        found += [_mistake(named, alias, field, texts) for field, texts in mistakes.items()]
    return found[:MOST_MESSAGES]


def _check_names(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    names = summaries.clashes(cursor, _crontab_identifiers(), schema=schema)
    return [_clash(names, alias)] if names else []


def _crontab_identifiers() -> list[str]:
    try:
        return [item.name for item in project_crontab.collect(conf.current())]
    except (ConfigurationError, ValueError):
        # Another check reports the mistakes of a crontab.
        return []


def _unknown_task(named: summaries.NamedTask, alias: str) -> CheckMessage:
    suggestion = did_you_mean(named.task, registry.tasks.identifiers())
    return Warning(
        f"{_subject(named.schedule, named.number, alias)}: expected a task of this project, got {named.task!r}. "
        "No worker of this project fires it.",
        hint=f"{suggestion} Define the task, or change, disable or delete the schedule.".strip(),
        id="graphile_worker.W011",
    )


def _mistake(named: summaries.NamedTimes, alias: str, field: str, texts: Sequence[str]) -> CheckMessage:
    return Warning(
        f"{_subject(named.schedule, named.number, alias)}: {field}: {' '.join(texts)}",
        hint="Correct the schedule. Until then, no worker fires it.",
        id="graphile_worker.W012",
    )


def _clash(names: Sequence[str], alias: str) -> CheckMessage:
    listed = ", ".join(map(repr, names[:MOST_LISTED])) + (" and more" if len(names) > MOST_LISTED else "")
    return Warning(
        f"The schedules of the database {alias!r}: expected names that no crontab item has as its identifier, got "
        f"{listed}. Both fire, and the events and logs of both have the same name.",
        hint="If the schedule replaces the crontab item, remove the item from the crontab (also from that of a worker "
        "of Node.js). If not, rename the schedule.",
        id="graphile_worker.W013",
    )


def _subject(name: str, number: int, alias: str) -> str:
    others = f" and {number - 1:,} more" if number > 1 else ""
    return f"The schedule {name!r}{others} in the database {alias!r}"
