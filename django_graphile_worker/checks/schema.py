"""Checks of a worker schema in its database: its tables, its migrations table and its functions.

`check_schema` also calls the checks of `rights`, `indexes`, `workers` and `schedules`, if the schema has the tables
that they need.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's names
from django.db import DEFAULT_DB_ALIAS
from django.db.migrations.recorder import MigrationRecorder

from django_graphile_worker import conf, routing
from django_graphile_worker.checks.indexes import check_indexes
from django_graphile_worker.checks.rights import check_row_security
from django_graphile_worker.checks.schedules import check_schedules
from django_graphile_worker.checks.workers import check_other_workers, check_rust_recovery, check_timeouts
from django_graphile_worker.exceptions import BreakingMigrationError
from django_graphile_worker.sql.errors import not_installed
from django_graphile_worker.sql.install import catalog, installer
from django_graphile_worker.sql.migrations_ledger import LEDGER, refuse_breaking_migration

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

REQUIRED_RELATIONS = {"_private_jobs", "_private_job_queues", "_private_tasks", "_private_known_crontabs", "jobs"}


def check_schema(connection: BaseDatabaseWrapper, schema: str) -> list[CheckMessage]:
    """Check that the schema is complete and that the role of the connection sees its tables."""
    if message := installer.too_old(connection):
        return [Error(message, hint="Upgrade the server.", id="graphile_worker.E024")]
    with connection.cursor() as cursor:
        if not _is_complete(cursor, schema):
            is_migrated = _is_migrated(connection)
            # Another migrate may have finished between the two queries: read the schema again after Django's record.
            if not is_migrated or not _is_complete(cursor, schema):
                return _missing_schema(connection, schema, is_migrated=is_migrated)
        if hidden := check_row_security(cursor, connection.alias, schema):
            return hidden
        messages = _check_ledger(cursor, schema)
        # A running migrate is about to do what these checks would advise.
        if not _is_migrating():
            messages += _check_functions(cursor, connection.alias, schema)
            messages += check_indexes(cursor, connection.alias, schema)
            messages += check_timeouts(cursor, connection.alias, schema)
            messages += check_other_workers(cursor, connection.alias, schema)
            messages += check_rust_recovery(cursor, connection.alias, schema)
            messages += check_schedules(cursor, connection.alias, schema)
    return messages


def _is_complete(cursor: Any, schema: str) -> bool:
    return catalog.relations(cursor, schema=schema) >= REQUIRED_RELATIONS


def _is_migrated(connection: BaseDatabaseWrapper) -> bool:
    return any(app == routing.APP_LABEL for app, _ in MigrationRecorder(connection).applied_migrations())


def _is_migrating() -> bool:
    return sys.argv[1:2] == ["migrate"]


def _missing_schema(connection: BaseDatabaseWrapper, schema: str, *, is_migrated: bool) -> list[CheckMessage]:
    if is_migrated and _is_migrating() and "zero" in sys.argv:
        return []
    # With named installations, migrate creates the schema of each installation that has none.
    if is_migrated and not conf.are_installations_named():
        return [_lost_schema(connection.alias, schema)]
    if _is_migrating():
        return []
    hint = "Jobs can be added and run once the app is migrated."
    return [Warning(not_installed(connection.alias, schema), hint=hint, id="graphile_worker.W001")]


def _lost_schema(alias: str, schema: str) -> CheckMessage:
    """Return the message for a schema that migrate does not create, because the app is recorded as migrated."""
    option = "" if alias == DEFAULT_DB_ALIAS else f" --database {alias}"
    return Error(
        f"The app {routing.APP_LABEL!r} is migrated in the database {alias!r}: expected the worker schema "
        f"{schema!r}, got none, or an incomplete one.",
        hint=f'To create an empty one, after DROP SCHEMA or under a new name: run "manage.py migrate '
        f'{routing.APP_LABEL} zero --fake{option}", then "manage.py migrate {routing.APP_LABEL}{option}". If '
        f'{conf.SETTING}["SCHEMA"] was changed, the old schema stays, with its jobs; to keep on using it, change the '
        f"setting back.",
        id="graphile_worker.E016",
    )


def _check_ledger(cursor: Any, schema: str) -> list[CheckMessage]:
    """Check that no newer graphile-worker has applied a breaking migration."""
    try:
        refuse_breaking_migration(cursor, schema=schema)
    except BreakingMigrationError as error:
        hint = "Upgrade django-graphile-worker. Workers of this version do not run on this schema."
        return [Error(str(error), hint=hint, id="graphile_worker.E018")]
    return []


def _check_functions(cursor: Any, alias: str, schema: str) -> list[CheckMessage]:
    """Check that no other program has replaced or dropped functions of the schema."""
    if catalog.part(cursor, installer.WORKER_SCHEMA, schema=schema) is None:
        return []
    foreign = installer.foreign_functions(cursor, schema=schema)
    missing = installer.missing_functions(cursor, schema=schema)
    if not foreign and not missing:
        return []
    names = ", ".join(sorted({*(function.name for function in foreign), *missing}))
    return [
        Error(
            f"The worker schema {schema!r} in the database {alias!r}: expected the functions of "
            f"django-graphile-worker, got missing functions, or functions of another program: {names}."
            f"{_newer_ledger(cursor, schema)}",
            hint='Run "manage.py graphile_worker repair", which restores the functions. migrate does not.',
            id="graphile_worker.E019",
        )
    ]


def _newer_ledger(cursor: Any, schema: str) -> str:
    latest = catalog.ledger(cursor, schema=schema).latest
    if latest <= LEDGER:
        return ""
    return (
        f" The migrations table has reached {latest}, which is beyond {LEDGER}: graphile_worker for Rust (0.14), which "
        "also replaces functions, or a newer graphile-worker has migrated this schema."
    )
