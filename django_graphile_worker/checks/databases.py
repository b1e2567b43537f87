"""Checks of the database that holds the queue."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's names
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db import Error as DatabaseError

from django_graphile_worker import conf, routing
from django_graphile_worker.checks.configuration import readable_places, readable_settings, setting_name
from django_graphile_worker.exceptions import BreakingMigrationError
from django_graphile_worker.routing import Place
from django_graphile_worker.sql import row_security
from django_graphile_worker.sql.errors import not_installed, not_permitted

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

OLDEST_PSYCOPG = (3, 2, 10)
# psycopg_pool's own: without max_size a pool does not grow beyond min_size.
DEFAULT_POOL_SIZE = 4
NEEDED_RELATIONS = {"_private_jobs", "_private_job_queues", "_private_tasks", "_private_known_crontabs", "jobs"}
RELATIONS_OF_OURS = {"_private_workers", "_private_statistics"}


def check_engine(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """The aliases exist, and are PostgreSQL."""
    return [message for place in readable_places() for message in _check_engine_of(place)]


def _check_engine_of(place: Place) -> list[CheckMessage]:
    alias, setting = place.using, setting_name(place, "DATABASE")
    if alias not in connections:
        known = ", ".join(map(repr, connections))
        return [
            Error(
                f"The queue's database: expected an alias of settings.DATABASES ({known}), got {alias!r}.",
                hint=f"Set {setting} to one of them, or look at DATABASE_ROUTERS.",
                id="graphile_worker.E004",
            )
        ]
    engine = connections.settings[alias].get("ENGINE")
    if _connection(alias) is None:
        return [
            Error(
                f"The queue's database {alias!r}: expected the engine 'django.db.backends.postgresql', got {engine!r}.",
                hint=f"The queue lives in PostgreSQL. Name such a database in {setting}.",
                id="graphile_worker.E005",
            )
        ]
    return []


def _connection(alias: str) -> BaseDatabaseWrapper | None:
    """Django's connection, not opened, when it is to PostgreSQL."""
    try:
        connection: BaseDatabaseWrapper = connections[alias]
    except ImproperlyConfigured:
        return None
    return connection if connection.vendor == "postgresql" else None


def _connected_places() -> list[tuple[Place, BaseDatabaseWrapper]]:
    """Where the queues are, with Django's connections, not opened; without those that `check_engine` tells."""
    found = [(place, _connection(place.using)) for place in readable_places() if place.using in connections]
    return [(place, connection) for place, connection in found if connection is not None]


def psycopg_version() -> tuple[int, ...] | None:
    """The version of psycopg 3, or None without it."""
    try:
        import psycopg
    except ImportError:
        return None
    return tuple(int(part) for part in psycopg.__version__.split(".")[:3] if part.isdigit())


def check_psycopg(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """psycopg 3, and one that does not leak notifications."""
    version = psycopg_version()
    expected = ".".join(map(str, OLDEST_PSYCOPG))
    hint = f"Install it: python -m pip install 'psycopg[binary]>={expected}'"
    if version is None:
        message = f"Expected psycopg {expected} or newer, got none: psycopg 2 cannot run the worker."
        return [Error(message, hint=hint, id="graphile_worker.E006")]
    if version < OLDEST_PSYCOPG:
        got = ".".join(map(str, version))
        message = f"Expected psycopg {expected} or newer, got {got}, which loses memory while it listens."
        return [Error(message, hint=hint, id="graphile_worker.E007")]
    return []


def told(messages: Sequence[CheckMessage]) -> str:
    """Messages and their hints in one line, for commands that run no system checks."""
    return " ".join(f"{message.msg} {message.hint}" for message in messages)


def check_routers(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Where jobs are added, their schema may be migrated; the routers and the setting agree."""
    settings = readable_settings()
    if settings is None or not router.routers:
        return []
    aliases = dict.fromkeys(place.using for place in readable_places())
    messages = [_unmigratable(alias) for alias in aliases if not router.allow_migrate(alias, routing.APP_LABEL)]
    routed, is_named = routing.routed_alias(settings.database), conf.are_installations_named()
    if settings.database not in ((routed,) if is_named else (DEFAULT_DB_ALIAS, routed)):
        messages.append(_disagreement(routed, settings.database))
    return messages


def _unmigratable(alias: str) -> CheckMessage:
    return Error(
        f"The database routers send jobs to {alias!r}: expected that they let the app "
        f"{routing.APP_LABEL!r} migrate there, got a refusal from allow_migrate().",
        hint="Make allow_migrate() and db_for_write() of your routers agree on this app.",
        id="graphile_worker.E014",
    )


def _disagreement(routed: str, database: str) -> CheckMessage:
    setting = setting_name(routing.place_of(), "DATABASE")
    if conf.are_installations_named():
        hint = "The setting is obeyed, and the models follow the routers. Make them and the setting agree."
    else:
        hint = "The routers are obeyed. Make them and the setting agree."
    return Warning(
        f"The database routers send jobs to {routed!r}: expected {database!r}, which {setting} says.",
        hint=hint,
        id="graphile_worker.W003",
    )


def check_pool(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """A pool has a connection for each job that runs at the same time."""
    return [message for place, connection in _connected_places() for message in _check_pool_of(place, connection)]


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
            f"The connection pool of the database {connection.alias!r}: expected at least as many connections "
            f"as jobs run at the same time ({place.settings.concurrency}), got {size}.",
            hint=f'Raise OPTIONS["pool"]["max_size"], or lower {setting_name(place, "CONCURRENCY")}.',
            id="graphile_worker.W002",
        )
    ]


def check_installation(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """The schema is there, and this role sees it. Runs only when Django is asked to check databases."""
    messages: list[CheckMessage] = []
    for place, connection in _connected_places():
        # A database that cannot be reached is not for this check to tell.
        with suppress(DatabaseError):
            if connection.alias in (databases or ()):
                messages += _look_at(connection, place.settings.schema)
    return messages


def _look_at(connection: BaseDatabaseWrapper, schema: str) -> list[CheckMessage]:
    # Here, as most commands, the worker's too, check no database: a millisecond of every start.
    from django_graphile_worker.sql.install import catalog

    with connection.cursor() as cursor:
        if not catalog.relations(cursor, schema=schema) >= NEEDED_RELATIONS:
            is_migrated = _is_migrated(connection)
            # Another migrate may have come to its end between the two looks: what it has recorded is there by now.
            if not is_migrated or not catalog.relations(cursor, schema=schema) >= NEEDED_RELATIONS:
                return _missing(connection, schema, is_migrated=is_migrated)
        role, tables = row_security.hidden_tables(cursor, schema=schema)
        if not tables:
            return [
                *_look_at_ledger(cursor, schema),
                *_look_at_functions(cursor, connection.alias, schema),
                *_look_at_indexes(cursor, connection.alias, schema),
                *_look_at_timeouts(cursor, connection.alias, schema),
            ]
    return [
        Error(
            not_permitted(connection.alias, schema, f"got {role!r}, to whom {', '.join(tables)} look empty"),
            hint="Connect as the owner of the schema, or give the role BYPASSRLS or policies.",
            id="graphile_worker.E015",
        )
    ]


def _look_at_ledger(cursor: Any, schema: str) -> list[CheckMessage]:
    from django_graphile_worker.sql.ledger import refuse_breaking_migration

    try:
        refuse_breaking_migration(cursor, schema=schema)
    except BreakingMigrationError as error:
        hint = "Workers of this version stop, and do not start, on such a schema."
        return [Error(str(error), hint=hint, id="graphile_worker.E018")]
    return []


def _look_at_functions(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    from django_graphile_worker.sql.install import catalog, installer
    from django_graphile_worker.sql.ledger import LEDGER

    if _is_migrating() or catalog.part(cursor, installer.WORKER_SCHEMA, schema=schema) is None:
        return []
    foreign = installer.foreign_functions(cursor, schema=schema)
    missing = installer.missing_functions(cursor, schema=schema)
    if not foreign and not missing:
        return []
    got = ", ".join(sorted({*(function.name for function in foreign), *missing}))
    latest = catalog.ledger(cursor, schema=schema).latest
    newer = (
        f" The table of migrations has come to {latest}, which is beyond {LEDGER}: that is what graphile_worker for "
        "Rust (0.14) does, which also replaces functions, or a newer graphile-worker."
        if latest > LEDGER
        else ""
    )
    return [
        Error(
            f"The worker schema {schema!r} in the database {alias!r}: expected the functions of "
            f"django-graphile-worker, got {got} of another program, or none.{newer}",
            hint='Run "manage.py graphile_worker repair", which puts them back. migrate has nothing to do.',
            id="graphile_worker.E019",
        )
    ]


def _look_at_indexes(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    from django_graphile_worker.sql.install import catalog, indexes

    if _is_migrating() or not catalog.relations(cursor, schema=schema) >= RELATIONS_OF_OURS:
        return []
    lack = indexes.lacking_indexes(cursor, schema=schema)
    if not any(lack):
        return []
    missing, incomplete = (", ".join(names) or "none" for names in lack)
    return [
        Warning(
            f"The worker schema {schema!r} in the database {alias!r}: expected all its indexes, got some missing "
            f"({missing}) or incomplete ({incomplete}). Where jobs are many they are found slowly.",
            hint=indexes.REMEDY,
            id="graphile_worker.W005",
        )
    ]


def _look_at_timeouts(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    from django_graphile_worker.sql import workers
    from django_graphile_worker.sql.install import catalog

    if _is_migrating() or catalog.part(cursor, workers.PART, schema=schema) is None:
        return []
    timeouts = workers.promised_timeouts(cursor, schema=schema)
    if len(timeouts) < 2:
        return []
    return [
        Warning(
            f"The workers of the schema {schema!r} in the database {alias!r}: expected all of them to have the same "
            f"WORKER_TIMEOUT, got {', '.join(f'{seconds:g}' for seconds in timeouts)} seconds.",
            hint="Each worker is judged by its own. Give all the same settings, unless this is meant to be so.",
            id="graphile_worker.W006",
        )
    ]


def _is_migrated(connection: BaseDatabaseWrapper) -> bool:
    # Here, as it is seldom asked for, and brings all of Django's migrations along: 4 ms of every start.
    from django.db.migrations.recorder import MigrationRecorder

    return any(app == routing.APP_LABEL for app, _ in MigrationRecorder(connection).applied_migrations())


def _missing(connection: BaseDatabaseWrapper, schema: str, *, is_migrated: bool) -> list[CheckMessage]:
    if is_migrated and _is_migrating() and "zero" in sys.argv:
        return []
    if is_migrated and not conf.are_installations_named():
        # migrate cannot mend this: it believes to have been here. Where installations are named, it looks for each.
        error = Error(
            f"The app {routing.APP_LABEL!r} is migrated in the database {connection.alias!r}, but: expected "
            f"the worker schema {schema!r}, got none, or an incomplete one.",
            hint=f'Was {conf.SETTING}["SCHEMA"] changed? Set it back. Or leave the old schema where it is, with its '
            f'jobs, and make an empty one under the new name: run "manage.py migrate {routing.APP_LABEL} zero '
            f'--fake{_option(connection.alias)}", then "manage.py migrate {routing.APP_LABEL}'
            f'{_option(connection.alias)}".',
            id="graphile_worker.E016",
        )
        return [error]
    if _is_migrating():
        return []
    warning = Warning(
        not_installed(connection.alias, schema),
        hint="Jobs can be added and run once the app is migrated.",
        id="graphile_worker.W001",
    )
    return [warning]


def _option(alias: str) -> str:
    return "" if alias == DEFAULT_DB_ALIAS else f" --database {alias}"


def _is_migrating() -> bool:
    """Is what would be advised being done?"""
    return sys.argv[1:2] == ["migrate"]
