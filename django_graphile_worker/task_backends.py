"""``settings.TASKS``, which belongs to Django Tasks: which backends the project has chosen."""

from __future__ import annotations

from collections.abc import Mapping

from django.conf import settings

# The packages of the frameworks, whose own backends run no jobs of ours.
_FRAMEWORKS = ("django.tasks.", "django_tasks.")


def chosen_backends() -> dict[str, str]:
    """Return the paths of the backends by alias, without those of the framework.

    A project that does not use Django Tasks has none: Django's default is a backend of the framework.
    """
    backends = getattr(settings, "TASKS", None)
    found = backends.items() if isinstance(backends, Mapping) else ()
    paths = {alias: str(entry.get("BACKEND", "")) for alias, entry in found if isinstance(entry, Mapping)}
    return {alias: path for alias, path in paths.items() if path and not path.startswith(_FRAMEWORKS)}
