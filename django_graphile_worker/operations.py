"""Migration operations: install, adopt, extend and remove the worker schema."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.apps import AppConfig
from django.db import DatabaseError, connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.migration import Migration
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from django_graphile_worker import conf
from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.sql import installation, installer, migration_locks
from django_graphile_worker.sql.errors import sqlstate
from django_graphile_worker.sql.installation import Part
from django_graphile_worker.sql.installer import WORKER_SCHEMA
from django_graphile_worker.sql.schema import ddl

LOCK_NOT_AVAILABLE = "55P03"
INSUFFICIENT_PRIVILEGE = "42501"


class SchemaOperation(ABC, Operation):
    """An operation on the worker schema: nothing for Django's state, and all or nothing in the database."""

    reduces_to_sql = True
    reversible = True

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Leave the models to operations of their own."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        if not _concerns(app_label, schema_editor.connection):
            return
        schema = conf.current().schema
        if schema_editor.collect_sql:
            self.write_install(schema_editor, schema)
            return
        with _all_or_nothing(schema_editor.connection):
            self.install(schema_editor, schema)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        if not _concerns(app_label, schema_editor.connection):
            return
        schema = conf.current().schema
        if schema_editor.collect_sql:
            self.write_uninstall(schema_editor, schema)
            return
        with _all_or_nothing(schema_editor.connection):
            self.uninstall(schema_editor, schema)

    @abstractmethod
    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Look at what is there, and do what is missing."""

    @abstractmethod
    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Run the statements for an empty database; sqlmigrate prints them."""

    @abstractmethod
    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Look at what is there, and leave it as it was found."""

    @abstractmethod
    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Run the statements that undo write_install; sqlmigrate prints them."""


class InstallWorkerSchema(SchemaOperation):
    """Make the worker schema, or adopt the one that graphile-worker has made."""

    def describe(self) -> str:
        return "Install or adopt the worker schema"

    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        with schema_editor.connection.cursor() as cursor:
            if installation.part(cursor, WORKER_SCHEMA, schema=schema):
                return  # another migrate was quicker
            relations = installation.relations(cursor, schema=schema)
            if "migrations" in relations:
                installer.adopt(schema_editor.execute, cursor, schema=schema)
                return
            _check_nothing_in_the_way(relations, schema)
            exists = installation.schema_exists(cursor, schema=schema)
            installer.make(schema_editor.execute, schema=schema, is_schema_made=not exists)

    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        installer.make(schema_editor.execute, schema=schema, is_schema_made=True)

    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        with schema_editor.connection.cursor() as cursor:
            found = installation.part(cursor, WORKER_SCHEMA, schema=schema)
            if found is None:
                return
            if found.is_adopted:
                installer.give_back(schema_editor.execute, cursor, found, schema=schema)
                return
            migration_locks.lock_jobs(cursor, schema=schema)
            _check_no_job_is_lost(installation.count_waiting_jobs(cursor, schema=schema), schema)
            installer.drop(schema_editor.execute, schema=schema)
            # What somebody else has put into the schema stays, and then so does the schema.
            if found.is_schema_made and installation.is_schema_empty(cursor, schema=schema):
                installation.drop_schema(schema_editor.execute, schema=schema)

    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        installer.drop(schema_editor.execute, schema=schema)
        installation.drop_schema(schema_editor.execute, schema=schema)


class RunSchemaFile(SchemaOperation):
    """Run a file of sql/ddl, and another one to undo it."""

    def __init__(self, forwards: str, backwards: str) -> None:
        self.forwards = forwards
        self.backwards = backwards

    def describe(self) -> str:
        return f"Run {self.forwards} in the worker schema"

    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        if not self._is_installed(schema_editor, schema):
            self.write_install(schema_editor, schema)

    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        schema_editor.execute(ddl(self.forwards, schema), params=None)
        installation.record_part(schema_editor.execute, Part(self.forwards), schema=schema)

    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        if self._is_installed(schema_editor, schema):
            self.write_uninstall(schema_editor, schema)

    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        schema_editor.execute(ddl(self.backwards, schema), params=None)
        installation.forget_part(schema_editor.execute, self.forwards, schema=schema)

    def _is_installed(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> bool:
        with schema_editor.connection.cursor() as cursor:
            return installation.part(cursor, self.forwards, schema=schema) is not None


def install_without_migrations(sender: AppConfig, using: str, **kwargs: Any) -> None:
    """Install what the migrations would have: a post_migrate receiver for test runs that skip them all."""
    if not _is_without_migrations(sender) or not _concerns(sender.label, connections[using]):
        return
    state = ProjectState()
    with connections[using].schema_editor() as schema_editor:
        for operation in _schema_operations(sender):
            operation.database_forwards(sender.label, schema_editor, state, state)


def keep_waiting_jobs(sender: AppConfig, using: str, plan: Sequence[tuple[Migration, bool]], **kwargs: Any) -> None:
    """Refuse to migrate back to nothing before the first step of it: a pre_migrate receiver."""
    is_last_step = any(backwards and (step.app_label, step.initial) == (sender.label, True) for step, backwards in plan)
    if not is_last_step or not _concerns(sender.label, connections[using]):
        return
    schema = conf.current().schema
    with connections[using].cursor() as cursor:
        found = installation.part(cursor, WORKER_SCHEMA, schema=schema)
        if found and not found.is_adopted:
            _check_no_job_is_lost(installation.count_waiting_jobs(cursor, schema=schema), schema)


def _is_without_migrations(app_config: AppConfig) -> bool:
    from django.db.migrations.loader import MigrationLoader

    return MigrationLoader.migrations_module(app_config.label)[0] is None


def _schema_operations(app_config: AppConfig) -> Iterator[SchemaOperation]:
    package = importlib.import_module(f"{app_config.name}.migrations")
    for name in sorted(module.name for module in pkgutil.iter_modules(package.__path__)):
        migration = importlib.import_module(f"{package.__name__}.{name}").Migration
        yield from (operation for operation in migration.operations if isinstance(operation, SchemaOperation))


def _concerns(app_label: str, connection: BaseDatabaseWrapper) -> bool:
    return connection.vendor == "postgresql" and router.allow_migrate(connection.alias, app_label)


@contextmanager
def _all_or_nothing(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Let one migrate at a time work on the schema, waiting for no lock longer than the setting says."""
    settings = conf.current()
    try:
        with transaction.atomic(using=connection.alias):
            with connection.cursor() as cursor:
                migration_locks.lock_installation(
                    cursor, schema=settings.schema, lock_timeout=settings.migration_lock_timeout
                )
            yield
    except DatabaseError as error:
        if sqlstate(error) == LOCK_NOT_AVAILABLE:
            raise SchemaError(_describe_lock(connection, settings)) from error
        if sqlstate(error) == INSUFFICIENT_PRIVILEGE:
            raise SchemaError(_describe_privilege(connection, settings, error)) from error
        raise


def _describe_lock(connection: BaseDatabaseWrapper, settings: conf.Settings) -> str:
    with connection.cursor() as cursor:
        holders = migration_locks.lock_holders(cursor, schema=settings.schema)
    who = "; ".join(str(holder) for holder in holders) or "a session that has ended meanwhile"
    return (
        f"Could not get a lock in the worker schema {settings.schema!r} within "
        f"{settings.migration_lock_timeout:g} seconds, and nothing was changed. Locks there are held by {who}. "
        f"Let it finish or end it with pg_terminate_backend(pid), then migrate again; to wait longer set "
        f'GRAPHILE_WORKER["MIGRATION_LOCK_TIMEOUT"].'
    )


def _describe_privilege(connection: BaseDatabaseWrapper, settings: conf.Settings, error: DatabaseError) -> str:
    return (
        f"The database user {connection.settings_dict.get('USER')!r} may not change the schema {settings.schema!r}: "
        f"{str(error).splitlines()[0]}. To make it, a user needs CREATE on the database; to adopt it, the user must be "
        f"the owner that graphile-worker used, or a member of it. Nothing was changed."
    )


def _check_nothing_in_the_way(relations: frozenset[str], schema: str) -> None:
    in_the_way = sorted(relations & installation.RELATIONS)
    if in_the_way:
        raise SchemaError(
            f"Expected the schema {schema!r} to be absent, empty, or made by graphile-worker, got one with "
            f"{', '.join(in_the_way)} but without graphile-worker's table of migrations. Choose another name with "
            f'GRAPHILE_WORKER["SCHEMA"].'
        )


def _check_no_job_is_lost(waiting: int, schema: str) -> None:
    if waiting and not conf.current().drop_waiting_jobs:
        raise SchemaError(
            f"Expected no waiting jobs in the schema {schema!r}, got {waiting}; dropping it would lose them. Let the "
            f'workers finish, or set GRAPHILE_WORKER["DROP_WAITING_JOBS"] = True.'
        )
