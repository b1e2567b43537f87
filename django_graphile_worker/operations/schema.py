"""The operations that create or adopt the worker schema, extend it file by file, and remove it."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from django_graphile_worker import conf
from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.operations.operation import SchemaOperation
from django_graphile_worker.sql.install import catalog, indexes, installer, locks
from django_graphile_worker.sql.install.catalog import Part
from django_graphile_worker.sql.install.installer import WORKER_SCHEMA
from django_graphile_worker.sql.schema import ddl


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
            if catalog.part(cursor, WORKER_SCHEMA, schema=schema):
                return  # another migrate has installed it in the meantime
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
            if found is None:
                return
            if found.is_adopted:
                installer.undo_adoption(schema_editor.execute, cursor, schema=schema)
                return
            locks.lock_jobs(cursor, schema=schema)
            check_no_job_is_lost(catalog.count_waiting_jobs(cursor, schema=schema), schema)
            installer.drop(schema_editor.execute, schema=schema)
            # Objects of the site in the schema stay, and then the schema stays, too.
            if found.is_schema_made and catalog.is_schema_empty(cursor, schema=schema):
                catalog.drop_schema(schema_editor.execute, schema=schema)

    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        installer.drop(schema_editor.execute, schema=schema)
        catalog.drop_schema(schema_editor.execute, schema=schema)


class RunSchemaFile(SchemaOperation):
    """An operation that runs a file of sql/ddl, and another file to undo it.

    If workers may be running, it leaves the indexes of the file to a BuildIndexes in a later migration.
    """

    def __init__(self, forwards: str, backwards: str) -> None:
        self.forwards = self.part = forwards
        self.backwards = backwards

    def describe(self) -> str:
        return f"Run {self.forwards} in the worker schema"

    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        if not self._is_installed(schema_editor, schema):
            self._run(schema_editor, schema, without=self._indexes_for_later(schema_editor, schema))

    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        self._run(schema_editor, schema)

    def _run(self, schema_editor: BaseDatabaseSchemaEditor, schema: str, *, without: Iterable[str] = ()) -> None:
        schema_editor.execute(indexes.without_indexes(ddl(self.forwards, schema), without), params=None)
        catalog.record_part(schema_editor.execute, Part(name=self.forwards), schema=schema)

    def _indexes_for_later(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> Iterable[str]:
        """Return the indexes to leave out: all for BuildIndexes if workers may be running, else existing indexes."""
        with schema_editor.connection.cursor() as cursor:
            worker_schema = catalog.part(cursor, WORKER_SCHEMA, schema=schema)
            is_adopted = worker_schema is not None and worker_schema.is_adopted
            if is_adopted or indexes.has_any_table_rows(cursor, schema=schema):
                return [index.name for index in indexes.indexes_of([self.forwards], schema=schema)]
            return indexes.existing_indexes(cursor, schema=schema)

    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        if self._is_installed(schema_editor, schema):
            self.write_uninstall(schema_editor, schema)

    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        schema_editor.execute(ddl(self.backwards, schema), params=None)
        catalog.forget_part(schema_editor.execute, self.forwards, schema=schema)

    def _is_installed(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> bool:
        with schema_editor.connection.cursor() as cursor:
            return catalog.part(cursor, self.forwards, schema=schema) is not None


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
