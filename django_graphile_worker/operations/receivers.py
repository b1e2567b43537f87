"""Receivers of Django's migration signals: keep waiting jobs, install what migrations did not, insert permissions."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from django.apps import AppConfig
from django.apps import apps as installed_apps
from django.core.management.base import CommandError
from django.db import connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.migration import Migration
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState

from django_graphile_worker import __version__, conf, registry
from django_graphile_worker.operations.schema_operations import SchemaOperation, check_no_job_is_lost, concerns
from django_graphile_worker.registry import schedule_codename
from django_graphile_worker.routing import APP_LABEL, places_in
from django_graphile_worker.sql import workers
from django_graphile_worker.sql.install import catalog
from django_graphile_worker.sql.install.installer import TABLES, WORKER_SCHEMA
from django_graphile_worker.versions import is_older, release_of

# How many workers a message names.
MAX_NAMES = 10


def install_without_migrations(sender: AppConfig, using: str, **kwargs: Any) -> None:
    """Receive post_migrate: install the worker schema if migrations are switched off, as in some test runs.

    Only migrate passes on a plan. Flush, after every test that commits, sends the signal, too, and has dropped nothing.
    """
    if "plan" not in kwargs or not _is_without_migrations(sender) or not concerns(sender.label, connections[using]):
        return
    state = ProjectState()
    with connections[using].schema_editor() as schema_editor:
        for operation in _schema_operations(sender):
            operation.database_forwards(sender.label, schema_editor, state, state)


def keep_waiting_jobs(sender: AppConfig, using: str, plan: Sequence[tuple[Migration, bool]], **kwargs: Any) -> None:
    """Receive pre_migrate: refuse to migrate back to zero while jobs wait, before the first step."""
    is_last_step = any(backwards and (step.app_label, step.initial) == (sender.label, True) for step, backwards in plan)
    if not is_last_step or not concerns(sender.label, connections[using]):
        return
    with connections[using].cursor() as cursor:
        for schema in _schemas_in(using):
            found = catalog.part(cursor, WORKER_SCHEMA, schema=schema)
            if found and not found.is_adopted:
                check_no_job_is_lost(catalog.count_waiting_jobs(cursor, schema=schema), schema)


def keep_older_workers(sender: AppConfig, using: str, plan: Sequence[tuple[Migration, bool]], **kwargs: Any) -> None:
    """Receive pre_migrate: refuse migrations that would break live workers of older releases, before the first step."""
    steps = [step for step, backwards in plan if step.app_label == sender.label and not backwards]
    if concerns(sender.label, connections[using]):
        for schema in _schemas_in(using):
            if message := describe_break(connections[using], steps, schema):
                raise CommandError(f"{message} Nothing was changed.")


def unapplied_break(app_config: AppConfig, connection: BaseDatabaseWrapper, schema: str) -> str | None:
    """Return what migrate would refuse because it would break live workers of older releases."""
    breaking = [
        migration(name, app_config.label)
        for name, migration in _migrations(app_config)
        if any(operation.breaks_before for operation in _operations_of(migration))
    ]
    if not breaking:
        return None
    recorded = {name for app, name in _applied_migrations(connection) if app == app_config.label}
    return describe_break(connection, [step for step in breaking if step.name not in recorded], schema)


def describe_break(connection: BaseDatabaseWrapper, steps: Iterable[Migration], schema: str) -> str | None:
    """Return which live workers would be broken by one of the migrations, and what to do.

    Return None if there are none, or if they shall stop.
    """
    pairs = [(operation.breaks_before, step.name) for step in steps for operation in _operations_of(step)]
    breaks = [(version, name) for version, name in pairs if version is not None]
    if not breaks or conf.current().stop_older_workers:
        return None
    version, name = max(breaks, key=lambda pair: release_of(pair[0]))
    with connection.cursor() as cursor:
        if catalog.part(cursor, TABLES, schema=schema) is None:
            return None
        older = workers.older_workers(cursor, version, schema=schema)
    if not older:
        return None
    named = ", ".join(older[:MAX_NAMES]) + (f" and {len(older) - MAX_NAMES} more" if len(older) > MAX_NAMES else "")
    first = f" or deploy {version} first," if is_older(version, __version__) else ""
    return (
        f"Workers of releases before {version} cannot work with the worker schema {schema!r} after the migration "
        f"{name}, and these are alive: {named}. Stop them,{first} and migrate again. To have them stop by "
        f'themselves after the migration, set GRAPHILE_WORKER["STOP_OLDER_WORKERS"] = True.'
    )


def install_named_later(
    sender: AppConfig, using: str, verbosity: int = 1, stdout: IO[str] | None = None, **kwargs: Any
) -> None:
    """Receive post_migrate: install the worker schema of installations that were named after the migrations ran.

    Django runs a migration once for each database, so the migration does not reach a schema that
    settings.GRAPHILE_WORKER names later.
    """
    connection = connections[using]
    if not conf.are_installations_named() or not concerns(sender.label, connection) or _is_without_migrations(sender):
        return
    recorded = {name for app, name in _applied_migrations(connection) if app == sender.label}
    migrations = [migration for name, migration in _migrations(sender) if name in recorded]
    for schema in _schemas_in(using):
        if not _is_complete(connection, migrations, schema):
            for migration in migrations:
                _install(connection, migration, schema)
            if verbosity >= 1 and migrations:
                # Without this line, the last message would be that of Django: that there is nothing to migrate.
                (stdout or sys.stdout).write(f"  Installed the worker schema {schema} in the database {using}.\n")


class MigrationState(NamedTuple):
    """The migrations of this version that were not applied, and those of a newer version that were."""

    pending: tuple[str, ...]
    newer: tuple[str, ...]


def migration_state(connection: BaseDatabaseWrapper) -> MigrationState:
    """Compare the migrations of this version with those that Django has recorded in the database."""
    app_config = installed_apps.get_app_config(APP_LABEL)
    if _is_without_migrations(app_config):
        return MigrationState((), ())
    known = [name for name, _ in _migrations(app_config)]
    applied = {name for app, name in _applied_migrations(connection) if app == APP_LABEL}
    return MigrationState(
        tuple(name for name in known if name not in applied), tuple(sorted(applied.difference(known)))
    )


def _schemas_in(using: str) -> list[str]:
    return [place.settings.schema for place in places_in(using)]


def _applied_migrations(connection: BaseDatabaseWrapper) -> Iterable[tuple[str, str]]:
    return MigrationRecorder(connection).applied_migrations()


def _is_complete(connection: BaseDatabaseWrapper, migrations: Iterable[type[Migration]], schema: str) -> bool:
    """Return whether the schema records all parts of these migrations as installed."""
    with connection.cursor() as cursor:
        return all(
            catalog.part(cursor, operation.part, schema=schema)
            for migration in migrations
            for operation in _operations_of(migration)
            if operation.part is not None
        )


def _install(connection: BaseDatabaseWrapper, migration: type[Migration], schema: str) -> None:
    with connection.schema_editor(atomic=migration.atomic) as schema_editor:
        for operation in _operations_of(migration):
            operation.run_install(schema_editor, schema)


def _is_without_migrations(app_config: AppConfig) -> bool:
    return MigrationLoader.migrations_module(app_config.label)[0] is None


def _schema_operations(app_config: AppConfig) -> Iterator[SchemaOperation]:
    for _, migration in _migrations(app_config):
        yield from _operations_of(migration)


def _migrations(app_config: AppConfig) -> Iterator[tuple[str, type[Migration]]]:
    named, _ = MigrationLoader.migrations_module(app_config.label)
    package = importlib.import_module(named or f"{app_config.name}.migrations")
    for name in sorted(module.name for module in pkgutil.iter_modules(package.__path__)):
        yield name, importlib.import_module(f"{package.__name__}.{name}").Migration


def _operations_of(migration: Migration | type[Migration]) -> list[SchemaOperation]:
    return [operation for operation in migration.operations if isinstance(operation, SchemaOperation)]


def create_task_permissions(*, using: str, apps: Any = installed_apps, **kwargs: Any) -> None:
    """Insert a permission for each task that has ``schedulable=True``.

    The permission of a task that is not schedulable any more stays, with the users and groups that have it, as those of
    deleted models do.
    """
    try:
        permission, content_type = apps.get_model("auth", "Permission"), apps.get_model("contenttypes", "ContentType")
        schedule = apps.get_model(APP_LABEL, "Schedule")
    except LookupError:
        # The project has no users, or the migrations of this app were undone.
        return
    if not router.allow_migrate_model(using, permission):
        return
    tasks = {schedule_codename(task.identifier): task.identifier for task in registry.tasks if task.schedulable is True}
    if not tasks:
        return
    found, _ = content_type.objects.using(using).get_or_create(app_label=APP_LABEL, model=schedule._meta.model_name)
    known = permission.objects.using(using).filter(content_type=found, codename__in=tasks)
    missing = tasks.keys() - set(known.values_list("codename", flat=True))
    permission.objects.using(using).bulk_create(
        permission(content_type=found, codename=codename, name=f"Can schedule {tasks[codename]}"[:255])
        for codename in sorted(missing)
    )
