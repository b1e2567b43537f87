"""Checks of ``settings.GRAPHILE_WORKER``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.core.checks import CheckMessage, Error
from django.utils.module_loading import import_string

from django_graphile_worker import conf
from django_graphile_worker.exceptions import ConfigurationError, SettingMistake
from django_graphile_worker.routing import Place, all_places

SETTINGS_PAGE = "https://github.com/django-graphile-worker/django-graphile-worker/blob/main/docs/reference/settings.md"


def readable_settings() -> conf.Settings | None:
    """The settings, or None when they are wrong: `check_settings` says so, and once is enough."""
    try:
        return conf.current()
    except ConfigurationError:
        return None


def readable_places() -> list[Place]:
    """Where the project's queues are, or nothing when the settings are wrong."""
    return [] if readable_settings() is None else all_places()


def setting_name(place: Place, key: str) -> str:
    """How a setting of this place is written."""
    installation = f'["{place.installation}"]' if conf.are_installations_named() else ""
    return f'{conf.SETTING}{installation}["{key}"]'


def check_settings(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Every key and every value."""
    try:
        conf.current()
    except ConfigurationError as error:
        return [_setting_message(mistake) for mistake in error.mistakes]
    return []


def _setting_message(mistake: SettingMistake) -> CheckMessage:
    if mistake.is_unknown_key:
        hint = f"Keys are upper-case; {SETTINGS_PAGE} lists them."
        return Error(mistake.message, hint=hint, id="graphile_worker.E001")
    if mistake.key == "SCHEMA":
        hint = "The default is 'graphile_worker'. Rename the schema before the first migrate."
        return Error(mistake.message, hint=hint, id="graphile_worker.E003")
    hint = f"{SETTINGS_PAGE} says what each setting takes."
    return Error(mistake.message, hint=hint, id="graphile_worker.E002")


def check_dotted_paths(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """What the worker imports when it starts, imported now."""
    return [message for place in readable_places() for message in _check_paths_of(place)]


def _check_paths_of(place: Place) -> list[CheckMessage]:
    settings = place.settings
    messages = list(_unusable(settings.middleware, setting_name(place, "MIDDLEWARE"), "graphile_worker.E010"))
    if isinstance(settings.forbidden_flags, str):
        name = setting_name(place, "FORBIDDEN_FLAGS")
        messages += _unusable([settings.forbidden_flags], name, "graphile_worker.E011")
    return messages


def _unusable(paths: Iterable[str], name: str, message_id: str) -> Iterator[CheckMessage]:
    for path in paths:
        try:
            value = import_string(path)
        except ImportError as error:
            got = f"{path!r}, which cannot be imported: {error}"
        else:
            if callable(value):
                continue
            got = f"{path!r}, which is {value!r}"
        yield Error(
            f"{name}: expected the dotted path of a callable, got {got}.",
            hint="Write the module's path, a dot, and the name: 'shop.jobs.measure'.",
            id=message_id,
        )
