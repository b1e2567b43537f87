"""Migration operations: install, adopt, extend and remove the worker schema."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from django.db import OperationalError, router, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from django_graphile_worker import conf
from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.sql import installation
from django_graphile_worker.sql.schema import ddl

WORKER_SCHEMA = "worker_schema.sql"
FUNCTION_FILES = ("job_rules.sql", "add_job.sql", "add_jobs.sql", "job_management.sql")
LOCK_NOT_AVAILABLE = "55P03"

Step = Callable[[BaseDatabaseSchemaEditor, str], None]


class SchemaOperation(Operation):
    """An operation on the worker schema: nothing for Django's state, everything in one transaction."""

    reduces_to_sql = True
    reversible = True

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """The models are declared by their own operations."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        self._run(app_label, schema_editor, self.install, self.write_install)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        self._run(app_label, schema_editor, self.uninstall, self.write_uninstall)

    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        raise NotImplementedError

    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        raise NotImplementedError

    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        raise NotImplementedError

    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        raise NotImplementedError

    def _run(self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, act: Step, write: Step) -> None:
        connection = schema_editor.connection
        if connection.vendor != "postgresql" or not router.allow_migrate(connection.alias, app_label):
            return
        settings = conf.current()
        if schema_editor.collect_sql:
            write(schema_editor, settings.schema)
            return
        try:
            with transaction.atomic(using=connection.alias):
                with connection.cursor() as cursor:
                    installation.lock_installation(
                        cursor, schema=settings.schema, lock_timeout=settings.migration_lock_timeout
                    )
                act(schema_editor, settings.schema)
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise
            raise SchemaError(_describe_lock(connection, settings)) from error


def _describe_lock(connection: Any, settings: conf.Settings) -> str:
    with connection.cursor() as cursor:
        holders = installation.lock_holders(cursor, schema=settings.schema)
    who = "; ".join(
        f"pid {holder.pid} (user {holder.user!r}, application {holder.application_name!r}, {holder.state}, "
        f"since {holder.since}): {holder.query}"
        for holder in holders
    )
    return (
        f"Could not lock the worker schema {settings.schema!r} within {settings.migration_lock_timeout:g} seconds; "
        f"nothing was changed. Locks in it are held by {who or 'a session that has ended since'}. "
        f"Let it finish, or end it with pg_terminate_backend(pid), and migrate again; or wait longer with "
        f'GRAPHILE_WORKER["MIGRATION_LOCK_TIMEOUT"].'
    )


class InstallWorkerSchema(SchemaOperation):
    """Make the worker schema, or adopt the one that graphile-worker has made."""

    def describe(self) -> str:
        return "Install or adopt the worker schema"

    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        with schema_editor.connection.cursor() as cursor:
            if installation.part(cursor, WORKER_SCHEMA, schema=schema):
                return
            exists = installation.schema_exists(cursor, schema=schema)
            found = installation.relations(cursor, schema=schema)
            is_adopted = "migrations" in found
            definitions: tuple[str, ...] = ()
            if is_adopted:
                check_ledger(installation.ledger(cursor, schema=schema), schema)
                definitions = tuple(
                    text for _, _, text in installation.function_definitions(cursor, schema=schema)
                )
            made = installation.Part(not exists, is_adopted, definitions)
            if not exists:
                schema_editor.execute(installation.create_schema(schema), params=None)
            if not is_adopted:
                schema_editor.execute(ddl(WORKER_SCHEMA, schema), params=None)
            for filename in (*FUNCTION_FILES, "installation.sql"):
                schema_editor.execute(ddl(filename, schema), params=None)
            installation.record_part(cursor, WORKER_SCHEMA, made, schema=schema)

    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        schema_editor.execute(installation.create_schema(schema), params=None)
        for filename in (WORKER_SCHEMA, *FUNCTION_FILES, "installation.sql"):
            schema_editor.execute(ddl(filename, schema), params=None)

    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        with schema_editor.connection.cursor() as cursor:
            made = installation.part(cursor, WORKER_SCHEMA, schema=schema)
            if made is None:
                return
            self.write_uninstall(schema_editor, schema)

    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        for filename in ("job_rules_drop.sql", "worker_schema_drop.sql"):
            schema_editor.execute(ddl(filename, schema), params=None)


class RunSchemaFile(SchemaOperation):
    """Run a file of sql/ddl, and another one to undo it."""

    def __init__(self, forwards: str, backwards: str) -> None:
        self.forwards = forwards
        self.backwards = backwards

    def describe(self) -> str:
        return f"Run {self.forwards} in the worker schema"

    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        with schema_editor.connection.cursor() as cursor:
            if installation.part(cursor, self.forwards, schema=schema):
                return
            self.write_install(schema_editor, schema)
            made = installation.Part(is_schema_made=False, is_adopted=False, found_functions=())
            installation.record_part(cursor, self.forwards, made, schema=schema)

    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        schema_editor.execute(ddl(self.forwards, schema), params=None)

    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        with schema_editor.connection.cursor() as cursor:
            if installation.part(cursor, self.forwards, schema=schema):
                self.write_uninstall(schema_editor, schema)
                installation.forget_part(cursor, self.forwards, schema=schema)

    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        schema_editor.execute(ddl(self.backwards, schema), params=None)


def check_ledger(ledger: installation.Ledger, schema: str) -> None:
    """Refuse a schema of another time than ours."""
    if ledger.latest < installation.LEDGER:
        raise SchemaError(
            f"The schema {schema!r} was made by an older graphile-worker: expected its migration "
            f"{installation.LEDGER}, got {ledger.latest}. Upgrade it with graphile-worker 0.18 "
            f"(npx graphile-worker@0.18 --schema-only --schema {schema} --connection …) and migrate again."
        )
    if ledger.latest_breaking > installation.LEDGER:
        raise SchemaError(
            f"The schema {schema!r} was changed by a newer graphile-worker in a way that older workers cannot "
            f"work with: expected no breaking migration after {installation.LEDGER}, got "
            f"{ledger.latest_breaking}. Upgrade django-graphile-worker, or use another GRAPHILE_WORKER['SCHEMA']."
        )
    if ledger.latest > installation.LEDGER:
        warnings.warn(
            f"The schema {schema!r} is at graphile-worker's migration {ledger.latest}; this version of "
            f"django-graphile-worker knows {installation.LEDGER}. The newer ones say they break nothing, so "
            f"it goes on.",
            RuntimeWarning,
            stacklevel=2,
        )
