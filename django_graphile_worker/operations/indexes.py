"""The operation that builds indexes of tables that are in use."""

from __future__ import annotations

import time

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.operations.operation import SchemaOperation, all_or_nothing, explained
from django_graphile_worker.sql.errors import sqlstate
from django_graphile_worker.sql.install import indexes
from django_graphile_worker.sql.install.indexes import Index

# The interval, in seconds, of checking whether another session has finished building its index.
POLL_INTERVAL = 0.2
DEADLOCK_DETECTED = "40P01"
# How often the builds of one operation begin again.
MOST_DEADLOCKS = 10


class BuildIndexes(SchemaOperation):
    """An operation that builds the missing indexes of indexes.sql, while other sessions add and run jobs.

    The migration must not be atomic. Each index is built, and dropped, in a transaction of its own: statements of
    graphile-worker lock the tables of jobs and of queues, and a transaction that locked both tables could deadlock with
    them. After an interruption, the operation can be run again and builds the remaining indexes.
    """

    def describe(self) -> str:
        return "Build the indexes that the tables of the queue do not have yet"

    def run_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Build the missing indexes; begin again if another migrate began to build an index at the same moment.

        Each of two concurrent builds waits for the other, so PostgreSQL cancels one of them.
        """
        for _ in range(MOST_DEADLOCKS):
            try:
                return self._build_missing(schema_editor, schema)
            except OperationalError as error:
                if sqlstate(error) != DEADLOCK_DETECTED:
                    raise
        return self._build_missing(schema_editor, schema)

    def _build_missing(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        connection = schema_editor.connection
        self._wait_for_running_builds(connection, schema)
        for name in self._incomplete(connection, schema):
            with all_or_nothing(connection, schema):
                self._drop_leftover(schema_editor, schema, name)
        for index in self._missing(connection, schema):
            self._build(schema_editor, schema, index)
        self._check_complete(connection, schema)

    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        self.write_install(schema_editor, schema)

    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        for index in indexes.wanted_indexes(schema=schema):
            schema_editor.execute(index.statement, params=None)

    def run_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Drop each index in a transaction of its own."""
        connection = schema_editor.connection
        with connection.cursor() as cursor:
            existing = indexes.existing_indexes(cursor, schema=schema)
        for index in indexes.wanted_indexes(schema=schema):
            if index.name in existing:
                with all_or_nothing(connection, schema):
                    indexes.drop_indexes(schema_editor.execute, [index.name], schema=schema)

    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        self.write_uninstall(schema_editor, schema)

    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        names = [index.name for index in indexes.wanted_indexes(schema=schema)]
        indexes.drop_indexes(schema_editor.execute, names, schema=schema)

    def _build(self, schema_editor: BaseDatabaseSchemaEditor, schema: str, index: Index) -> None:
        """Build the index, concurrently only if a table is large.

        A concurrent build takes two scans and two waits, which a small table does not justify.
        """
        connection = schema_editor.connection
        with connection.cursor() as cursor:
            is_large = indexes.is_any_table_large(cursor, schema=schema)
        # PostgreSQL builds no index concurrently inside a transaction, such as that of a test.
        if is_large and not connection.in_atomic_block:
            with explained(connection, schema):
                schema_editor.execute(index.concurrent_statement, params=None)
        else:
            with all_or_nothing(connection, schema):
                schema_editor.execute(index.statement, params=None)

    def _drop_leftover(self, schema_editor: BaseDatabaseSchemaEditor, schema: str, name: str) -> None:
        connection = schema_editor.connection
        with connection.cursor() as cursor:
            indexes.lock_out_builds(cursor, schema=schema)
        if name in self._incomplete(connection, schema):
            indexes.drop_indexes(schema_editor.execute, [name], schema=schema)

    def _wait_for_running_builds(self, connection: BaseDatabaseWrapper, schema: str) -> None:
        """Wait until no other session builds an index, however long it takes.

        Do not wait inside a transaction: the session that builds an index waits for open transactions.
        """
        while not connection.in_atomic_block:
            with connection.cursor() as cursor:
                if not indexes.is_build_running(cursor, schema=schema):
                    return
            # Poll and do not wait in PostgreSQL: a session that waits there has a snapshot (LOCK TABLE needs it to look
            # up the name), and a session that builds an index waits for all older snapshots. Each would wait for the
            # other.
            time.sleep(POLL_INTERVAL)

    def _missing(self, connection: BaseDatabaseWrapper, schema: str) -> list[Index]:
        with connection.cursor() as cursor:
            existing = indexes.existing_indexes(cursor, schema=schema)
        return [index for index in indexes.wanted_indexes(schema=schema) if index.name not in existing]

    def _incomplete(self, connection: BaseDatabaseWrapper, schema: str) -> list[str]:
        with connection.cursor() as cursor:
            existing = indexes.existing_indexes(cursor, schema=schema)
        ours = [index.name for index in indexes.wanted_indexes(schema=schema)]
        return [name for name in ours if not existing.get(name, True)]

    def _check_complete(self, connection: BaseDatabaseWrapper, schema: str) -> None:
        incomplete = self._incomplete(connection, schema)
        if incomplete:
            raise SchemaError(
                f"Expected complete indexes in the schema {schema!r}, got {', '.join(incomplete)} incomplete: another "
                f"session began to build them and did not finish. Migrate again; everything else is installed."
            )
