"""The selection of the tasks that a worker runs."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from django_graphile_worker.conf import Settings
from django_graphile_worker.registry import Registry, Task


def selected_tasks(registry: Registry, settings: Settings) -> dict[str, Task[Any, Any]]:
    """Return the registered tasks that TASKS includes and EXCLUDE_TASKS does not exclude."""
    return {
        task.identifier: task
        for task in registry
        if (not settings.tasks or _matches(task.identifier, settings.tasks))
        and not _matches(task.identifier, settings.exclude_tasks)
    }


def _matches(identifier: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(identifier, pattern) for pattern in patterns)
