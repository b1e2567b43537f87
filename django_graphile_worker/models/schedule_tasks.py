"""Finds the task of a schedule, by its name, among the tasks of this project."""

from __future__ import annotations

from typing import Any

from django_graphile_worker import registry
from django_graphile_worker.task_backends import chosen_backends


def find_task(identifier: str) -> registry.Task[Any, Any] | None:
    """Return a registered task or a Django task; None if this project has no such task, or cannot load it."""
    found = registry.tasks.get(identifier)
    if found is not None or not chosen_backends():
        return found
    # Late import: only projects with Django tasks have the backend, which is above this layer.
    from django_graphile_worker.backend.runnable import find_runnable

    try:
        return find_runnable(identifier)
    except (Exception, SystemExit):
        # The module of a task may raise anything when it is imported.
        return None
