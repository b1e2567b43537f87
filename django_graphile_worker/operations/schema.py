"""The operations that create or adopt the worker schema, add this package's tables and functions, and remove them."""

from __future__ import annotations

from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from django_graphile_worker import conf
from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.operations.operation import SchemaOperation, all_or_nothing
from django_graphile_worker.sql.install import catalog, installer, locks
from django_graphile_worker.sql.install.installer import FUNCTIONS, TABLES, WORKER_SCHEMA


class InstallWorkerSchema(SchemaOperation):
    """An operation that creates the worker schema, or adopts a schema that graphile-worker has created."""

    part = WORKER_SCHEMA

    def describe(self) -> str:
        return "Install or adopt the worker schema"

    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        connection = schema_editor.connection
        if message := installer.too_old(connection):
            raise SchemaError(message)
        with connection.cursor() as cursor:
            relations = catalog.relations(cursor, schema=schema)
            if "migrations" in relations:
                installer.adopt(schema_editor.execute, cursor, schema=schema)
                return
            _check_nothing_in_the_way(relations, schema)
            exists = catalog.schema_exists(cursor, schema=schema)
            installer.make(schema_editor.execute, schema=schema, is_schema_made=not exists)

    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        installer.make(schema_editor.execute, schema=schema, is_schema_made=True)

    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        with schema_editor.connection.cursor() as cursor:
            found = catalog.part(cursor, WORKER_SCHEMA, schema=schema)
            if found is not None and found.is_adopted:
                installer.drop_installation(schema_editor.execute, schema=schema)
                return
            locks.lock_jobs(cursor, schema=schema)
            check_no_job_is_lost(catalog.count_waiting_jobs(cursor, schema=schema), schema)
            installer.drop(schema_editor.execute, schema=schema)
            # Objects of the site in the schema stay, and then the schema stays, too.
            if found is not None and found.is_schema_made and catalog.is_schema_empty(cursor, schema=schema):
                catalog.drop_schema(schema_editor.execute, schema=schema)

    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        installer.drop(schema_editor.execute, schema=schema)
        catalog.drop_schema(schema_editor.execute, schema=schema)


class CreateTables(SchemaOperation):
    """An operation that creates the tables of this package; backwards, it drops them and the private functions."""

    part = TABLES

    def describe(self) -> str:
        return "Create the tables of this package in the worker schema"

    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        self.write_install(schema_editor, schema)

    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        installer.create_tables(schema_editor.execute, schema=schema)

    def run_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Wait for the transactions that may still call functions of this package, then drop everything.

        An earlier transaction has restored the functions of an adopted schema. PostgreSQL may run the texts of
        functions that a transaction knows until it ends; such a transaction has a lock on the jobs. It may need any of
        the tables that are dropped, so nothing else is locked while it is waited for.
        """
        with all_or_nothing(schema_editor.connection, schema), schema_editor.connection.cursor() as cursor:
            if self._is_installed(schema_editor.connection, schema):
                locks.lock_jobs(cursor, schema=schema)
        super().run_uninstall(schema_editor, schema)

    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        self.write_uninstall(schema_editor, schema)

    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        installer.uninstall(schema_editor.execute, schema=schema)


class CreateFunctions(SchemaOperation):
    """An operation that creates the functions, and replaces the public functions, which graphile-worker has, too.

    Backwards, it restores the public functions that an adopted schema had. The functions of this package stay until the
    tables are dropped, in a later transaction: another session may still be running them.
    """

    part = FUNCTIONS

    def describe(self) -> str:
        return "Create the functions of this package in the worker schema"

    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        with schema_editor.connection.cursor() as cursor:
            installer.keep_foreign_functions(schema_editor.execute, cursor, schema=schema)
        self.write_install(schema_editor, schema)

    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        installer.create_functions(schema_editor.execute, schema=schema)

    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        with schema_editor.connection.cursor() as cursor:
            installer.restore_found_functions(schema_editor.execute, cursor, schema=schema)
        self.write_uninstall(schema_editor, schema)

    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        catalog.forget_part(schema_editor.execute, FUNCTIONS, schema=schema)


def _check_nothing_in_the_way(relations: frozenset[str], schema: str) -> None:
    in_the_way = sorted(relations & catalog.RELATIONS)
    if in_the_way:
        raise SchemaError(
            f"Expected the schema {schema!r} to be absent, empty, or created by graphile-worker, got a "
            f"schema with {', '.join(in_the_way)} but without graphile-worker's table of migrations. Choose another "
            f'name with GRAPHILE_WORKER["SCHEMA"].'
        )


def check_no_job_is_lost(waiting: int, schema: str) -> None:
    """Raise SchemaError when jobs wait, unless the setting DROP_WAITING_JOBS allows to drop them."""
    if waiting and not conf.current().drop_waiting_jobs:
        raise SchemaError(
            f"Expected no waiting jobs in the schema {schema!r}, got {waiting}; dropping it would lose them. Let the "
            f'workers finish, or set GRAPHILE_WORKER["DROP_WAITING_JOBS"] = True.'
        )
