"""Receivers of Django's migration signals: keep waiting jobs, install what migrations did not, insert permissions."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from django.apps import AppConfig
from django.apps import apps as installed_apps
from django.db import connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.migration import Migration
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState

from django_graphile_worker import conf, registry
from django_graphile_worker.operations.schema_operations import SchemaOperation, check_no_job_is_lost, concerns
from django_graphile_worker.registry import schedule_codename
from django_graphile_worker.routing import APP_LABEL, places_in
from django_graphile_worker.sql.install import catalog
from django_graphile_worker.sql.install.installer import WORKER_SCHEMA


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
    package = importlib.import_module(f"{app_config.name}.migrations")
    for name in sorted(module.name for module in pkgutil.iter_modules(package.__path__)):
        yield name, importlib.import_module(f"{package.__name__}.{name}").Migration


def _operations_of(migration: type[Migration]) -> list[SchemaOperation]:
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
