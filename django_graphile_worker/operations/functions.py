"""The operation that replaces the public functions, which graphile-worker has, too, by newer versions."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from django_graphile_worker.operations.operation import SchemaOperation
from django_graphile_worker.sql.install import catalog, installer
from django_graphile_worker.sql.install.catalog import Part
from django_graphile_worker.sql.schema import ddl


class ReplaceFunctions(SchemaOperation):
    """An operation that runs files of sql/ddl with newer functions, and backwards files with the earlier functions.

    graphile-worker may have replaced a function since the schema was adopted. Forwards, the operation records the text
    of such a function, and migrating back to zero restores it; backwards, such a function stays unchanged. In an
    adopted schema, backwards, it restores the functions as they were found, and drops nothing that they replace: a
    transaction of another session may still be running the newer functions.
    """

    def __init__(self, name: str, forwards: Iterable[str], backwards: Iterable[str]) -> None:
        self.name = self.part = name
        self.forwards = tuple(forwards)
        self.backwards = tuple(backwards)

    def describe(self) -> str:
        return f"Replace the functions of the worker schema ({self.name})"

    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        if not self._is_installed(schema_editor, schema):
            with schema_editor.connection.cursor() as cursor:
                installer.keep_foreign_functions(schema_editor.execute, cursor, schema=schema)
            self.write_install(schema_editor, schema)

    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        self._run(schema_editor, schema, self.forwards)
        catalog.record_part(schema_editor.execute, Part(name=self.name), schema=schema)

    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        if self._is_installed(schema_editor, schema):
            with schema_editor.connection.cursor() as cursor:
                if installer.restore_found_functions(schema_editor.execute, cursor, schema=schema):
                    catalog.forget_part(schema_editor.execute, self.name, schema=schema)
                    return
                foreign = installer.foreign_functions(cursor, schema=schema)
            self.write_uninstall(schema_editor, schema)
            for function in foreign:
                schema_editor.execute(function.definition, params=None)

    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        self._run(schema_editor, schema, self.backwards)
        catalog.forget_part(schema_editor.execute, self.name, schema=schema)

    def _run(self, schema_editor: BaseDatabaseSchemaEditor, schema: str, filenames: Iterable[str]) -> None:
        for filename in filenames:
            schema_editor.execute(ddl(filename, schema), params=None)

    def _is_installed(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> bool:
        with schema_editor.connection.cursor() as cursor:
            return catalog.part(cursor, self.name, schema=schema) is not None
