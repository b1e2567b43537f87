"""The selection of the tasks that a worker runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

from django_graphile_worker.conf import Settings, chosen_backends
from django_graphile_worker.registry import Registry, Task, label_of

# Returns the task with this identifier, if this worker runs it; raises what the import of its module raises.
FindTask = Callable[[str], Task[Any, Any] | None]


def selected_tasks(registry: Registry, settings: Settings) -> dict[str, Task[Any, Any]]:
    """Return the registered tasks that this worker runs."""
    return {task.identifier: task for task in registry if is_selected(task, settings)}


def is_selected(task: Task[Any, Any], settings: Settings) -> bool:
    """Return whether TASKS includes the task, EXCLUDE_TASKS does not exclude it, and its label is one to run."""
    identifier = task.identifier
    return (
        (not settings.tasks or _matches(identifier, settings.tasks))
        and not _matches(identifier, settings.exclude_tasks)
        and _has_label(task, settings)
    )


def unmatched_patterns(registry: Registry, settings: Settings) -> dict[str, tuple[str, ...]]:
    """Return the entries of TASKS and of EXCLUDE_TASKS that no registered task matches, by setting.

    In a project with Django Tasks, an entry may be the path of a task that this process has not imported yet.
    """
    may_be_path = bool(chosen_backends())
    found: dict[str, tuple[str, ...]] = {}
    for name, patterns in (("TASKS", settings.tasks), ("EXCLUDE_TASKS", settings.exclude_tasks)):
        unmatched = tuple(
            pattern
            for pattern in patterns
            if not any(fnmatchcase(task.identifier, pattern) for task in registry)
            and not (may_be_path and "." in pattern)
        )
        if unmatched:
            found[name] = unmatched
    return found


def task_finder(settings: Settings) -> FindTask | None:
    """Return the function that finds Django tasks by name, or None if the project has none of our backends."""
    find_any = any_task_finder()
    if find_any is None:
        return None
    if settings.queue_labels:
        # Late import: a project without Django Tasks never loads the backend.
        from django_graphile_worker.backend.options import refuse_unknown_labels

        refuse_unknown_labels(settings.queue_labels)

    def find(identifier: str) -> Task[Any, Any] | None:
        task = find_any(identifier)
        return task if task is not None and is_selected(task, settings) else None

    return find


def any_task_finder() -> FindTask | None:
    """Return the function that finds any Django task of the project; None without our backends."""
    if not chosen_backends():
        return None
    # Late import: a project without Django Tasks never loads the backend.
    from django_graphile_worker.backend.options import has_backends

    if not has_backends():
        return None
    # Late import: as above.
    from django_graphile_worker.backend.runnable import find_runnable

    return find_runnable


def _has_label(task: Task[Any, Any], settings: Settings) -> bool:
    labels = settings.queue_labels or task.default_labels
    return not labels or label_of(task.identifier) in labels


def _matches(identifier: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(identifier, pattern) for pattern in patterns)
