"""``settings.TASKS``: which of its backends are ours."""

from __future__ import annotations

from django.utils.module_loading import import_string

from django_graphile_worker.task_backends import chosen_backends


def has_backends() -> bool:
    """Return whether the setting names our backend, or a subclass of it."""
    return any(map(_is_ours, chosen_backends().values()))


def _is_ours(path: str) -> bool:
    try:
        return getattr(import_string(path), "runs_in_graphile_worker", False) is True
    except ImportError:
        # Django reports it when a task is made.
        return False
