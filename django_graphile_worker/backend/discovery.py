"""Finds Django tasks by the path of their function. Nothing but a task of this backend is ever returned."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Any

from django_graphile_worker.backend.compat import Task, task_backends
from django_graphile_worker.registry import is_path


def find_django_task(path: str) -> Task[..., Any] | None:
    """Return the task at this path, or None if there is none, or its module cannot be imported."""
    try:
        return import_django_task(path)
    except (Exception, SystemExit):
        return None


def import_django_task(path: str) -> Task[..., Any] | None:
    """Return the task at this path, or None for anything else; raise what the import of its module raises.

    The name of a job may come from any program that can add jobs, so a function, a class, or a task of another backend
    at this path does not count.
    """
    if not is_path(path):
        return None
    found = _loaded(path)
    if found is None:
        # A module may have been added since the directories were read.
        importlib.invalidate_caches()
        try:
            found = pkgutil.resolve_name(path)
        except AttributeError:
            return None
    return found if is_ours(found) else None


def is_ours(value: Any) -> bool:
    """Return whether a value is a task whose backend is a ``GraphileWorkerBackend``."""
    if not isinstance(value, Task):
        return False
    try:
        return getattr(type(task_backends[value.backend]), "runs_in_graphile_worker", False) is True
    except Exception:  # the alias is not in settings.TASKS any more
        return False


def _loaded(path: str) -> Any:
    """Return what a module that is loaded has at this path, or None."""
    module, _, name = path.rpartition(".")
    return getattr(sys.modules.get(module), name, None)
