"""Indexes of tables that are in use while they are built."""

from __future__ import annotations

import time
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.operations.operation import SchemaOperation, explained
from django_graphile_worker.sql import indexes
from django_graphile_worker.sql.indexes import Index

# How often one who waits for another's index looks whether it is there, in seconds.
LOOK_INTERVAL = 0.2


class BuildIndexes(SchemaOperation):
    """Build what is missing of the indexes of some files, and let everybody add jobs meanwhile.

    For a migration that is not atomic: PostgreSQL builds an index like that in
    several transactions. Interrupted, it goes on where it was when run again.
    """

    def __init__(self, *filenames: str) -> None:
        self.filenames = filenames

    def describe(self) -> str:
        return "Build the indexes that a large table does not have yet"

    def run_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """The transaction is for what takes no time; what others hold up, and may hold others up, is outside."""
        connection = schema_editor.connection
        self._wait_for_others(connection, schema)
        super().run_install(schema_editor, schema)
        for index in self._missing(connection, schema):
            with explained(connection, schema):
                # Inside somebody's transaction (a test's, say) only the quick way is open.
                is_hurried = connection.in_atomic_block
                schema_editor.execute(index.statement if is_hurried else index.unhurried_statement, params=None)
        self._check_complete(connection, schema)

    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """In a transaction only what takes no time: leftovers go, and small tables get theirs at once."""
        connection = schema_editor.connection
        with connection.cursor() as cursor:
            if self._incomplete(cursor, schema):
                indexes.lock_out_builders(cursor, schema=schema)
                indexes.drop_indexes(schema_editor.execute, self._incomplete(cursor, schema), schema=schema)
            is_large = indexes.is_any_table_large(cursor, schema=schema)
        if not is_large:
            self.write_install(schema_editor, schema)

    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        for index in indexes.indexes_of(self.filenames, schema=schema):
            schema_editor.execute(index.statement, params=None)

    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Whoever described them drops them."""

    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Whoever described them drops them."""

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

    def _incomplete(self, cursor: Any, schema: str) -> list[str]:
        existing = indexes.existing_indexes(cursor, schema=schema)
        ours = [index.name for index in indexes.indexes_of(self.filenames, schema=schema)]
        return [name for name in ours if not existing.get(name, True)]

    def _check_complete(self, connection: BaseDatabaseWrapper, schema: str) -> None:
        with connection.cursor() as cursor:
            incomplete = self._incomplete(cursor, schema)
        if incomplete:
            raise SchemaError(
                f"Expected complete indexes in the schema {schema!r}, got {', '.join(incomplete)} incomplete: whoever "
                f"was building did not finish. Migrate again; everything else is installed."
            )
