"""Indexes of tables that are in use while they are built."""

from __future__ import annotations

import time

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.operations.operation import SchemaOperation, all_or_nothing, explained
from django_graphile_worker.sql.install import indexes
from django_graphile_worker.sql.install.indexes import Index

# How often one who waits for another's index looks whether it is there, in seconds.
LOOK_INTERVAL = 0.2


class BuildIndexes(SchemaOperation):
    """Build what is missing of the indexes of some files, and let everybody go on meanwhile.

    For a migration that is not atomic. Each index is built, and dropped, in a transaction of its own:
    graphile-worker's statements lock jobs and queues, and one transaction that locked both tables could deadlock with
    them. Interrupted, it goes on where it was when run again.
    """

    def __init__(self, *filenames: str) -> None:
        self.filenames = filenames

    def describe(self) -> str:
        return "Build the indexes that the tables of the queue do not have yet"

    def run_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        connection = schema_editor.connection
        self._wait_for_others(connection, schema)
        for name in self._incomplete(connection, schema):
            with all_or_nothing(connection, schema):
                self._drop_leftover(schema_editor, schema, name)
        for index in self._missing(connection, schema):
            self._build(schema_editor, schema, index)
        self._check_complete(connection, schema)

    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        self.write_install(schema_editor, schema)

    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        for index in indexes.indexes_of(self.filenames, schema=schema):
            schema_editor.execute(index.statement, params=None)

    def run_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Before those who described them drop them: all in one transaction, if they were still there."""
        connection = schema_editor.connection
        with connection.cursor() as cursor:
            existing = indexes.existing_indexes(cursor, schema=schema)
        for index in indexes.indexes_of(self.filenames, schema=schema):
            if index.name in existing:
                with all_or_nothing(connection, schema):
                    indexes.drop_indexes(schema_editor.execute, [index.name], schema=schema)

    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        self.write_uninstall(schema_editor, schema)

    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        names = [index.name for index in indexes.indexes_of(self.filenames, schema=schema)]
        indexes.drop_indexes(schema_editor.execute, names, schema=schema)

    def _build(self, schema_editor: BaseDatabaseSchemaEditor, schema: str, index: Index) -> None:
        """While everybody goes on, or in a moment: a small table's index is not worth two scans and two waits."""
        connection = schema_editor.connection
        with connection.cursor() as cursor:
            is_large = indexes.is_any_table_large(cursor, schema=schema)
        # Inside somebody's transaction (a test's, say) only the quick way is open.
        if is_large and not connection.in_atomic_block:
            with explained(connection, schema):
                schema_editor.execute(index.unhurried_statement, params=None)
        else:
            with all_or_nothing(connection, schema):
                schema_editor.execute(index.statement, params=None)

    def _drop_leftover(self, schema_editor: BaseDatabaseSchemaEditor, schema: str, name: str) -> None:
        connection = schema_editor.connection
        with connection.cursor() as cursor:
            indexes.lock_out_builders(cursor, schema=schema)
        if name in self._incomplete(connection, schema):
            indexes.drop_indexes(schema_editor.execute, [name], schema=schema)

    def _wait_for_others(self, connection: BaseDatabaseWrapper, schema: str) -> None:
        """However long it takes; in no transaction, for whoever builds an index waits for those."""
        while not connection.in_atomic_block:
            with connection.cursor() as cursor:
                if not indexes.is_somebody_building(cursor, schema=schema):
                    return
            # Nothing in PostgreSQL can be waited for here: a session that waits has a snapshot (with LOCK TABLE that
            # of looking up the name), and who builds an index waits for all older ones. Each would wait for the other.
            time.sleep(LOOK_INTERVAL)

    def _missing(self, connection: BaseDatabaseWrapper, schema: str) -> list[Index]:
        with connection.cursor() as cursor:
            existing = indexes.existing_indexes(cursor, schema=schema)
        return [index for index in indexes.indexes_of(self.filenames, schema=schema) if index.name not in existing]

    def _incomplete(self, connection: BaseDatabaseWrapper, schema: str) -> list[str]:
        with connection.cursor() as cursor:
            existing = indexes.existing_indexes(cursor, schema=schema)
        ours = [index.name for index in indexes.indexes_of(self.filenames, schema=schema)]
        return [name for name in ours if not existing.get(name, True)]

    def _check_complete(self, connection: BaseDatabaseWrapper, schema: str) -> None:
        incomplete = self._incomplete(connection, schema)
        if incomplete:
            raise SchemaError(
                f"Expected complete indexes in the schema {schema!r}, got {', '.join(incomplete)} incomplete: whoever "
                f"was building did not finish. Migrate again; everything else is installed."
            )
