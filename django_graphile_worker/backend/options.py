"""The setting ``TASKS``: which of its backends are ours, their options, and what ``manage.py check`` reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.utils.module_loading import import_string

from django_graphile_worker import conf, setting_types
from django_graphile_worker.backend.compat import task_backends
from django_graphile_worker.conf import chosen_backends
from django_graphile_worker.exceptions import ConfigurationError, InvalidJobError, InvalidTypeError, SettingMistake
from django_graphile_worker.job_options import valid_identifier, valid_max_attempts, valid_queue_name
from django_graphile_worker.registry import DEFAULT_LABEL
from django_graphile_worker.routing import APP_LABEL, Place, place_of
from django_graphile_worker.text import did_you_mean


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """The options of one backend; ``None`` leaves the choice to ``GRAPHILE_WORKER``."""

    # Seconds.
    result_ttl: float = timedelta(days=7).total_seconds()
    database: str | None = None
    installation: str | None = None
    # The named queue of each label whose jobs run one at a time.
    serial_queues: Mapping[str, str] = field(default_factory=dict)
    # Django Tasks has no retries: code that was written for it need not be safe to run twice.
    max_attempts: int = 1
    # The labels that workers run unless they are given others; empty for all labels.
    queue_labels: tuple[str, ...] = ()

    def place(self) -> Place:
        """Return the place of the jobs; raise ConfigurationError if there is none."""
        return place_of(self.database, self.installation)


def _serial_queues(value: Any) -> dict[str, str]:
    expected = "a dict of labels and names of queues, {'accounts': 'accounts'}"
    if not isinstance(value, Mapping) or not all(isinstance(label, str) and label for label in value):
        raise setting_types.ExpectationError(expected)
    try:
        queues = {label: valid_queue_name(name) for label, name in value.items()}
    except (InvalidJobError, InvalidTypeError) as error:
        raise setting_types.ExpectationError(f"{expected} ({error})") from None
    if None in queues.values():
        raise setting_types.ExpectationError(expected)
    return {label: name for label, name in queues.items() if name is not None}


def _max_attempts(value: Any) -> int:
    try:
        number = valid_max_attempts(value)
    except (InvalidJobError, InvalidTypeError) as error:
        raise setting_types.ExpectationError(str(error)) from None
    if number is None:
        raise setting_types.ExpectationError("a whole number")
    return number


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "RESULT_TTL": setting_types.duration(),
    "DATABASE": setting_types.text,
    "INSTALLATION": setting_types.text,
    "SERIAL_QUEUES": _serial_queues,
    "MAX_ATTEMPTS": _max_attempts,
    "QUEUE_LABELS": setting_types.strings,
}


def read_options(options: Any, *, alias: str, labels: set[str]) -> BackendOptions:
    """Return the options of a backend; raise one ConfigurationError with every mistake.

    ``labels`` are the names in ``QUEUES``; if there are none, every label is allowed.
    """
    where = f'TASKS["{alias}"]["OPTIONS"]'
    if not isinstance(options, Mapping):
        message = f"{where}: expected a dict, got {options!r}."
        raise ConfigurationError(mistakes=[SettingMistake(key="OPTIONS", message=message)])
    values: dict[str, Any] = {}
    mistakes: list[SettingMistake] = []
    for key, value in options.items():
        if key not in _CONVERTERS:
            mistakes.append(_unknown_key(key, where))
            continue
        try:
            values[key.lower()] = _CONVERTERS[key](value)
        except setting_types.ExpectationError as expected:
            message = f'{where}["{key}"]: expected {expected}, got {value!r}.'
            mistakes.append(SettingMistake(key=key, message=message))
    mistakes += _unknown_labels(values, where, labels)
    if mistakes:
        raise ConfigurationError(mistakes=mistakes)
    return BackendOptions(**values)


def _unknown_key(key: object, where: str) -> SettingMistake:
    known = sorted(_CONVERTERS)
    way_out = did_you_mean(str(key).upper(), known) or f"Known keys: {', '.join(known)}."
    message = f"{where}: expected a known key, got {key!r}. {way_out}"
    return SettingMistake(key=str(key), message=message, is_unknown_key=True)


def _unknown_labels(values: Mapping[str, Any], where: str, labels: set[str]) -> list[SettingMistake]:
    if not labels:
        return []
    return [
        SettingMistake(
            key=key.upper(),
            message=f'{where}["{key.upper()}"]: expected labels of QUEUES ({", ".join(map(repr, sorted(labels)))}), '
            f"got {label!r}. Add it to QUEUES.",
        )
        for key in ("serial_queues", "queue_labels")
        for label in values.get(key, ())
        if label not in labels
    ]


def has_backends() -> bool:
    """Return whether the setting names our backend, or a subclass of it."""
    return any(map(_is_ours, chosen_backends().values()))


def refuse_unknown_labels(labels: Iterable[str]) -> None:
    """Raise ConfigurationError if no task can have one of these labels: the worker would wait in vain."""
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


_GUIDE = "docs/guides/django-tasks.md describes the options."


def check_backend(backend: Any) -> list[CheckMessage]:
    """Return a message for each mistake in the setting of a backend."""
    return [*_check_app(backend), *_check_labels(backend), *_check_options(backend)]


def _check_app(backend: Any) -> list[CheckMessage]:
    if any(config.label == APP_LABEL for config in apps.get_app_configs()):
        return []
    return [
        Error(
            f'TASKS["{backend.alias}"]: the app "django_graphile_worker" is not installed.',
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
