"""What ``manage.py check`` reports about ``settings.TASKS``: Django calls ``check()`` of each backend."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error

from django_graphile_worker import conf
from django_graphile_worker.exceptions import ConfigurationError, InvalidJobError
from django_graphile_worker.job_options import valid_identifier
from django_graphile_worker.routing import APP_LABEL

_GUIDE = "docs/guides/django-tasks.md describes the options."


def check_backend(backend: Any) -> list[CheckMessage]:
    """Return a message for each mistake in the setting of a backend."""
    return [*_check_app(backend), *_check_labels(backend), *_check_options(backend)]


def _check_app(backend: Any) -> list[CheckMessage]:
    if any(config.label == APP_LABEL for config in apps.get_app_configs()):
        return []
    return [
        Error(
            f'TASKS["{backend.alias}"]: expected the app "django_graphile_worker" to be installed, got no such app.',
            hint='Add "django_graphile_worker" to INSTALLED_APPS, and run migrate.',
            id="graphile_worker.E020",
        )
    ]


def _check_labels(backend: Any) -> list[CheckMessage]:
    messages: list[CheckMessage] = []
    for label in sorted(backend.queues, key=repr):
        try:
            valid_identifier(label)
        except (InvalidJobError, TypeError) as error:
            messages.append(
                Error(
                    f'TASKS["{backend.alias}"]["QUEUES"]: {str(error).replace("identifier", "label")}',
                    hint="A label is a part of the task identifier of its jobs. Choose a short name.",
                    id="graphile_worker.E021",
                )
            )
    return messages


def _check_options(backend: Any) -> list[CheckMessage]:
    try:
        backend.checked_options.place()
    except ConfigurationError as error:
        texts = [mistake.message for mistake in error.mistakes] or [f'TASKS["{backend.alias}"]["OPTIONS"]: {error}']
        # Another check reports those of the settings.
        own = [text for text in texts if not text.startswith(conf.SETTING)]
        return [Error(text, hint=_GUIDE, id="graphile_worker.E021") for text in own]
    return []
