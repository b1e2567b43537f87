"""The operations of the migrations: create or adopt the worker schema, add tables, functions and indexes, and undo it.

Each runs in one transaction under a lock, and its errors say what to do.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import DatabaseError, OperationalError, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from django_graphile_worker import conf
from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.routing import places_in
from django_graphile_worker.sql.errors import sqlstate
from django_graphile_worker.sql.install import catalog, indexes, installer
from django_graphile_worker.sql.install.indexes import Index
from django_graphile_worker.sql.install.installer import FUNCTIONS, TABLES, WORKER_SCHEMA

LOCK_NOT_AVAILABLE = "55P03"
INSUFFICIENT_PRIVILEGE = "42501"
DEADLOCK_DETECTED = "40P01"
SEARCH_PATH = "pg_catalog, pg_temp"
# The interval, in seconds, of checking whether another session has finished building its index.
POLL_INTERVAL = 0.2
# How often the builds of indexes of one operation begin again.
MAX_DEADLOCKS = 10

OnSchema = Callable[[BaseDatabaseSchemaEditor, str], None]


class SchemaOperation(ABC, Operation):
    """An operation on the worker schema, in one transaction. It does not change the state of Django's models."""

    reduces_to_sql = True
    reversible = True
    # The name under which the schema records that the operation has run; None for operations without a record.
    part: str | None = None
    # Workers of releases before this version cannot work with the part; None if all can.
    breaks_before: str | None = None

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: other operations create the models."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        self._perform(app_label, schema_editor, self.run_install, self._write_install)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        self._perform(app_label, schema_editor, self.run_uninstall, self.write_uninstall)

    def _perform(self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, run: OnSchema, write: OnSchema) -> None:
        if not concerns(app_label, schema_editor.connection):
            return
        if schema_editor.collect_sql and schema_editor.atomic_migration:
            # Outside a transaction, SET LOCAL would have no effect.
            schema_editor.execute(f"/* gw:install */ set local search_path = {SEARCH_PATH};", params=None)
        act = write if schema_editor.collect_sql else run
        for place in places_in(schema_editor.connection.alias):
            act(schema_editor, place.settings.schema)

    def run_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Install the part, unless another migrate has installed it in the meantime."""
        with all_or_nothing(schema_editor.connection, schema):
            if not self._is_installed(schema_editor.connection, schema):
                self.install(schema_editor, schema)
                self._record_break(schema_editor, schema)

    def _write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        self.write_install(schema_editor, schema)
        self._record_break(schema_editor, schema)

    def _record_break(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        if self.part is not None and self.breaks_before is not None:
            catalog.record_break(schema_editor.execute, self.part, self.breaks_before, schema=schema)

    def run_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        with all_or_nothing(schema_editor.connection, schema):
            if self._is_installed(schema_editor.connection, schema):
                self.uninstall(schema_editor, schema)

    def _is_installed(self, connection: BaseDatabaseWrapper, schema: str) -> bool:
        with connection.cursor() as cursor:
            return self.part is not None and catalog.part(cursor, self.part, schema=schema) is not None

    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Install what is missing in the database."""
        self.write_install(schema_editor, schema)

    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Undo ``install``, and restore the database to the state before it."""
        self.write_uninstall(schema_editor, schema)

    @abstractmethod
    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Run the statements for an empty database; sqlmigrate prints them."""

    @abstractmethod
    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Run the statements that undo write_install; sqlmigrate prints them."""


def concerns(app_label: str, connection: BaseDatabaseWrapper) -> bool:
    """Return whether the operations run on this connection: it is PostgreSQL, and the site's routers allow it."""
    return connection.vendor == "postgresql" and router.allow_migrate(connection.alias, app_label)


@contextmanager
def all_or_nothing(connection: BaseDatabaseWrapper, schema: str) -> Iterator[None]:
    """Run the block in one transaction, while no other migration runs, with MIGRATION_LOCK_TIMEOUT for each lock.

    Objects that the block creates refer to PostgreSQL's own functions and operators, whatever objects other roles have
    put into the schemas of the site's search_path.
    """
    with explained(connection, schema), transaction.atomic(using=connection.alias):
        with connection.cursor() as cursor:
            path = installer.set_search_path(cursor, SEARCH_PATH)
            installer.lock_installation(cursor, schema=schema, lock_timeout=conf.current().migration_lock_timeout)
        yield
        with connection.cursor() as cursor:
            installer.set_search_path(cursor, path)


@contextmanager
def explained(connection: BaseDatabaseWrapper, schema: str) -> Iterator[None]:
    """Turn errors about locks and privileges into SchemaError, which says the cause and what to do."""
    try:
        yield
    except DatabaseError as error:
        if sqlstate(error) == LOCK_NOT_AVAILABLE:
            raise SchemaError(_describe_lock(connection, schema)) from error
        if sqlstate(error) == INSUFFICIENT_PRIVILEGE:
            raise SchemaError(_describe_privilege(connection, schema, error)) from error
        raise


def _describe_lock(connection: BaseDatabaseWrapper, schema: str) -> str:
    with connection.cursor() as cursor:
        holders = installer.lock_holders(cursor, schema=schema)
    sessions = "; ".join(str(holder) for holder in holders) or "a session that has ended in the meantime"
    return (
        f"Could not get a lock in the worker schema {schema!r} within "
        f"{conf.current().migration_lock_timeout:g} seconds, and nothing was changed. Locks are held by {sessions}. "
        f"Let it finish or end it with pg_terminate_backend(pid), then migrate again. To wait longer, set "
        f'GRAPHILE_WORKER["MIGRATION_LOCK_TIMEOUT"].'
    )


def _describe_privilege(connection: BaseDatabaseWrapper, schema: str, error: DatabaseError) -> str:
    return (
        f"The database user {connection.settings_dict.get('USER')!r} may not change the schema {schema!r}: "
        f"{str(error).splitlines()[0]}. To make it, a user needs CREATE on the database; to adopt it, the user must be "
        f"the owner that graphile-worker used, or a member of that role. Nothing was changed."
    )


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
            installer.lock_jobs(cursor, schema=schema)
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
                installer.lock_jobs(cursor, schema=schema)
        super().run_uninstall(schema_editor, schema)

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
            f"The schema {schema!r} has {', '.join(in_the_way)}, but not graphile-worker's table of migrations. Choose "
            f'another name with GRAPHILE_WORKER["SCHEMA"].'
        )


def check_no_job_is_lost(waiting: int, schema: str) -> None:
    """Raise SchemaError when jobs wait, unless the setting DROP_WAITING_JOBS allows to drop them."""
    if waiting and not conf.current().drop_waiting_jobs:
        raise SchemaError(
            f"The schema {schema!r} has waiting jobs ({waiting}), and dropping it would lose them. Let the workers "
            f'finish, or set GRAPHILE_WORKER["DROP_WAITING_JOBS"] = True.'
        )


class BuildIndexes(SchemaOperation):
    """An operation that builds missing indexes, while other sessions add and run jobs.

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
        for _ in range(MAX_DEADLOCKS):
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
            expected = indexes.expected_indexes(cursor, schema=schema)
        return [index for index in expected if index.name not in existing]

    def _incomplete(self, connection: BaseDatabaseWrapper, schema: str) -> list[str]:
        with connection.cursor() as cursor:
            return list(indexes.lacking_indexes(cursor, schema=schema).incomplete)

    def _check_complete(self, connection: BaseDatabaseWrapper, schema: str) -> None:
        incomplete = self._incomplete(connection, schema)
        if incomplete:
            raise SchemaError(
                f"Indexes in the schema {schema!r} are incomplete ({', '.join(incomplete)}): another session began to "
                f"build them and did not finish. Migrate again; everything else is installed."
            )
