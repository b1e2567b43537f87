"""Checks of the databases that contain the jobs. They open no connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's names
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.backends.base.base import BaseDatabaseWrapper

from django_graphile_worker import conf, routing
from django_graphile_worker.checks.configuration import setting_name, valid_places, valid_settings
from django_graphile_worker.routing import Place

OLDEST_PSYCOPG = (3, 2, 10)
# The default of psycopg_pool: without max_size a pool does not grow beyond min_size.
DEFAULT_POOL_SIZE = 4


def check_engine(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that the aliases exist and name PostgreSQL databases."""
    return [message for place in valid_places() for message in _check_engine_of(place)]


def _check_engine_of(place: Place) -> list[CheckMessage]:
    alias, setting = place.using, setting_name(place, "DATABASE")
    if alias not in connections:
        return [_unknown_alias(alias, setting)]
    if _postgresql_connection(alias) is None:
        return [_wrong_engine(alias, setting)]
    return []


def _unknown_alias(alias: str, setting: str) -> CheckMessage:
    known = ", ".join(map(repr, connections))
    return Error(
        f"The database for jobs: expected an alias of settings.DATABASES ({known}), got {alias!r}.",
        hint=f"Set {setting} to one of these aliases, or correct DATABASE_ROUTERS.",
        id="graphile_worker.E004",
    )


def _wrong_engine(alias: str, setting: str) -> CheckMessage:
    engine = connections.settings[alias].get("ENGINE")
    return Error(
        f"The database for jobs, {alias!r}: expected the engine 'django.db.backends.postgresql', got {engine!r}.",
        hint=f"Jobs are stored in PostgreSQL. Set {setting} to the alias of a PostgreSQL database.",
        id="graphile_worker.E005",
    )


def _postgresql_connection(alias: str) -> BaseDatabaseWrapper | None:
    """Return Django's connection without opening it; None when the alias does not name a PostgreSQL database."""
    try:
        connection: BaseDatabaseWrapper = connections[alias]
    except ImproperlyConfigured:
        return None
    return connection if connection.vendor == "postgresql" else None


def places_with_connections() -> list[tuple[Place, BaseDatabaseWrapper]]:
    """Return each place with Django's connection, not opened. `check_engine` reports the places that have none."""
    found = [(place, _postgresql_connection(place.using)) for place in valid_places() if place.using in connections]
    return [(place, connection) for place, connection in found if connection is not None]


def psycopg_version() -> tuple[int, ...] | None:
    """Return the version of psycopg 3, or None when it is not installed."""
    try:
        # Late import: psycopg may be missing, which `check_psycopg` reports.
        import psycopg
    except ImportError:
        return None
    return tuple(int(part) for part in psycopg.__version__.split(".")[:3] if part.isdigit())


def check_psycopg(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that psycopg 3 is installed, in a version that does not leak notifications."""
    version = psycopg_version()
    expected = ".".join(map(str, OLDEST_PSYCOPG))
    hint = f"Install it: python -m pip install 'psycopg[binary]>={expected}'"
    if version is None:
        message = f"psycopg {expected} or newer is not installed. psycopg 2 cannot run the worker."
        return [Error(message, hint=hint, id="graphile_worker.E006")]
    if version < OLDEST_PSYCOPG:
        got = ".".join(map(str, version))
        message = f"psycopg {got} leaks memory while it listens; {expected} or newer is needed."
        return [Error(message, hint=hint, id="graphile_worker.E007")]
    return []


def in_one_line(messages: Sequence[CheckMessage]) -> str:
    """Return messages and hints in one line, for commands that run no system checks."""
    return " ".join(f"{message.msg} {message.hint}" for message in messages)


def check_routers(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that routers allow the app to migrate where they send jobs, and agree with the setting."""
    settings = valid_settings()
    if settings is None or not router.routers:
        return []
    aliases = dict.fromkeys(place.using for place in valid_places())
    messages = [_not_migratable(alias) for alias in aliases if not router.allow_migrate(alias, routing.APP_LABEL)]
    routed, is_named = routing.routed_alias(settings.database), conf.are_installations_named()
    if settings.database not in ((routed,) if is_named else (DEFAULT_DB_ALIAS, routed)):
        messages.append(_different_databases(routed, settings.database))
    return messages


def _not_migratable(alias: str) -> CheckMessage:
    return Error(
        f"The database routers send jobs to {alias!r}, but their allow_migrate() refuses the app {routing.APP_LABEL!r} "
        f"there.",
        hint="Make allow_migrate() and db_for_write() of the routers agree on this app.",
        id="graphile_worker.E014",
    )


def _different_databases(routed: str, database: str) -> CheckMessage:
    setting = setting_name(routing.place_of(), "DATABASE")
    if conf.are_installations_named():
        hint = "Jobs follow the setting, and models follow the routers. Make both name the same database."
    else:
        hint = "The routers take precedence. Make the routers and the setting name the same database."
    return Warning(
        f"The database routers send jobs to {routed!r}, but {setting} is {database!r}.",
        hint=hint,
        id="graphile_worker.W003",
    )


def check_pool(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that a pool has a connection for each job that runs at the same time."""
    return [message for place, connection in places_with_connections() for message in _check_pool_of(place, connection)]


def _check_pool_of(place: Place, connection: BaseDatabaseWrapper) -> list[CheckMessage]:
    pool = connection.settings_dict.get("OPTIONS", {}).get("pool")
    if not pool:
        return []
    options = pool if isinstance(pool, dict) else {}
    size = options.get("max_size") or options.get("min_size", DEFAULT_POOL_SIZE)
    if size >= place.settings.concurrency:
        return []
    return [
        Warning(
            f"The connection pool of the database {connection.alias!r} has {size} connections, fewer than jobs run at "
            f"the same time ({place.settings.concurrency}).",
            hint=f'Raise OPTIONS["pool"]["max_size"], or lower {setting_name(place, "CONCURRENCY")}.',
            id="graphile_worker.W002",
        )
    ]
