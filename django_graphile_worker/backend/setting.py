"""``settings.TASKS``: which of its backends are ours."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils.module_loading import import_string

from django_graphile_worker.conf import chosen_backends
from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.registry import DEFAULT_LABEL


def has_backends() -> bool:
    """Return whether the setting names our backend, or a subclass of it."""
    return any(map(_is_ours, chosen_backends().values()))


def refuse_unknown_labels(labels: Iterable[str]) -> None:
    """Raise ConfigurationError if no task can have one of these labels: the worker would wait in vain."""
    # Late import: only a worker that was told labels needs the backends themselves.
    from django_graphile_worker.backend.compat import task_backends

    ours = [alias for alias, path in chosen_backends().items() if _is_ours(path)]
    allowed = [set(task_backends[alias].queues) for alias in ours]
    known = {DEFAULT_LABEL}.union(*allowed)
    unknown = sorted(set(labels) - known)
    # A backend with QUEUES = [] allows all labels.
    if unknown and all(allowed):
        raise ConfigurationError(
            f"queue label: expected one of {', '.join(map(repr, sorted(known)))}, got {unknown[0]!r}. "
            f'Add it to TASKS["{ours[0]}"]["QUEUES"].'
        )


def _is_ours(path: str) -> bool:
    try:
        return getattr(import_string(path), "runs_in_graphile_worker", False) is True
    except ImportError:
        # Django reports it when a task is made.
        return False
