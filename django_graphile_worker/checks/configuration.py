"""Checks of ``settings.GRAPHILE_WORKER``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - the name of the class in Django
from django.utils.module_loading import import_string

from django_graphile_worker import conf, registry
from django_graphile_worker.exceptions import ConfigurationError, SettingMistake
from django_graphile_worker.routing import Place, all_places
from django_graphile_worker.setting_types import MAIL_ADMINS, TASK_PREFIX, is_exception_class
from django_graphile_worker.telemetry import observers
from django_graphile_worker.text import did_you_mean

SETTINGS_PAGE = "https://github.com/django-graphile-worker/django-graphile-worker/blob/main/docs/reference/settings.md"


def valid_settings() -> conf.Settings | None:
    """Return the settings, or None when they are invalid: `check_settings` reports that, and other checks skip them."""
    try:
        return conf.current()
    except ConfigurationError:
        return None


def valid_places() -> list[Place]:
    """Return the databases and schemas of all installations, or nothing when the settings are invalid."""
    return [] if valid_settings() is None else all_places()


def setting_name(place: Place, key: str) -> str:
    """Return a setting of an installation as it is written in settings.py."""
    installation = f'["{place.installation}"]' if conf.are_installations_named() else ""
    return f'{conf.SETTING}{installation}["{key}"]'


def check_settings(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check every key and every value of the setting."""
    try:
        conf.current()
    except ConfigurationError as error:
        return [_setting_message(mistake) for mistake in error.mistakes]
    return []


def _setting_message(mistake: SettingMistake) -> CheckMessage:
    if mistake.is_unknown_key:
        hint = f"Keys are in upper case. {SETTINGS_PAGE} lists them."
        return Error(mistake.message, hint=hint, id="graphile_worker.E001")
    if mistake.key == "SCHEMA":
        hint = "The default is 'graphile_worker'. Choose another name before the first migrate."
        return Error(mistake.message, hint=hint, id="graphile_worker.E003")
    hint = f"{SETTINGS_PAGE} describes the values of each setting."
    return Error(mistake.message, hint=hint, id="graphile_worker.E002")


def check_observers(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that the libraries of OPENTELEMETRY and SENTRY are installed."""
    if valid_settings() is None:
        return []
    try:
        observers.load()
    except ConfigurationError as error:
        hint = "Or remove the setting: then nothing is reported."
        return [Error(mistake.message, hint=hint, id="graphile_worker.E028") for mistake in error.mistakes]
    return []


def check_immediate_mode(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that jobs are not run by the process that adds them where that is a mistake: in production."""
    if settings.DEBUG or _is_test_run():
        return []
    return [
        Warning(
            f"{setting_name(place, 'IMMEDIATE')} is True, and DEBUG is False: the process that adds a job runs it "
            "before it answers the request, and no worker retries it after a failure.",
            hint="Remove IMMEDIATE from the settings of production, and start a worker: manage.py runworker.",
            id="graphile_worker.W010",
        )
        for place in valid_places()
        if place.settings.immediate
    ]


def check_alerts(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that the mail of alerts goes to somebody, and that this project has the tasks that they name."""
    messages: list[CheckMessage] = [
        Warning(
            f'{setting_name(place, "ALERTS")} names "mail_admins", and the setting ADMINS is empty: nobody is told.',
            hint="Add an address to ADMINS, and try it: manage.py graphile_worker alerts --test.",
            id="graphile_worker.W015",
        )
        for place in valid_places()
        if place.settings.alerts is not None and MAIL_ADMINS in place.settings.alerts.to and not settings.ADMINS
    ]
    return messages + [message for place in valid_places() for message in _check_tasks_of_alerts(place)]


def _check_tasks_of_alerts(place: Place) -> Iterator[CheckMessage]:
    destinations = place.settings.alerts.to if place.settings.alerts else ()
    for task in (each.removeprefix(TASK_PREFIX) for each in destinations if each.startswith(TASK_PREFIX)):
        if task not in registry.tasks:
            close = did_you_mean(task, registry.tasks.identifiers())
            yield Warning(
                f"{setting_name(place, 'ALERTS')}: this project has no task {task!r}. {close}".rstrip(),
                hint="Nobody is told unless a worker of another project has the task. Define it with @task in a module "
                "that this project loads.",
                id="graphile_worker.W018",
            )


def check_metrics(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that the package is installed that the metrics need."""
    settings = valid_settings()
    keys = [key for key in ("METRICS_PORT", "METRICS_TOKEN") if settings and getattr(settings, key.lower()) is not None]
    if not keys or find_spec("prometheus_client") is not None:
        return []
    return [
        Warning(
            f"{conf.SETTING} has {keys[0]}, and the package prometheus-client is missing: /live and /ready work, and "
            "/metrics answers with an error.",
            hint='pip install "django-graphile-worker[prometheus]"',
            id="graphile_worker.W017",
        )
    ]


def _is_test_run() -> bool:
    """Return whether the test environment of Django is set up, in which DEBUG is False and mail has an outbox."""
    return hasattr(sys.modules.get("django.core.mail"), "outbox")


def check_dotted_paths(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that the worker can import what settings name by its path when it starts."""
    return [message for place in valid_places() for message in _check_dotted_paths_of(place)]


def _check_dotted_paths_of(place: Place) -> list[CheckMessage]:
    settings = place.settings
    messages = list(_check_callables(settings.middleware, setting_name(place, "MIDDLEWARE"), "graphile_worker.E010"))
    if isinstance(settings.forbidden_flags, str):
        name = setting_name(place, "FORBIDDEN_FLAGS")
        messages += _check_callables([settings.forbidden_flags], name, "graphile_worker.E011")
    if isinstance(settings.backoff, str):
        messages += _check_callables([settings.backoff], setting_name(place, "BACKOFF"), "graphile_worker.E025")
    paths = [each for each in settings.give_up_on if isinstance(each, str)]
    messages += _check_exceptions(paths, setting_name(place, "GIVE_UP_ON"), "graphile_worker.E026")
    return messages


def _check_callables(paths: Iterable[str], name: str, message_id: str) -> Iterator[CheckMessage]:
    for got in _invalid_paths(paths, callable):
        yield Error(
            f"{name}: expected the dotted path of a callable, got {got}.",
            hint="Use the path of the module, a dot, and the name of the callable: 'shop.jobs.measure'.",
            id=message_id,
        )


def _check_exceptions(paths: Iterable[str], name: str, message_id: str) -> Iterator[CheckMessage]:
    for got in _invalid_paths(paths, is_exception_class):
        yield Error(
            f"{name}: expected dotted paths of exception classes, got {got}.",
            hint="Use the path of the module, a dot, and the name of the class: 'shop.errors.OutOfStock'.",
            id=message_id,
        )


def _invalid_paths(paths: Iterable[str], is_valid: Callable[[object], bool]) -> Iterator[str]:
    """Yield each path that cannot be used, and why."""
    for path in paths:
        try:
            value = import_string(path)
        except ImportError as error:
            yield f"{path!r}, which cannot be imported: {error}"
        else:
            if not is_valid(value):
                yield f"{path!r}, which is {value!r}"
