"""The base class of the operations: each runs in one transaction under a lock, and its errors say what to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import DatabaseError, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from django_graphile_worker import conf
from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.routing import places_in
from django_graphile_worker.sql.errors import sqlstate
from django_graphile_worker.sql.install import catalog, locks

LOCK_NOT_AVAILABLE = "55P03"
INSUFFICIENT_PRIVILEGE = "42501"
SEARCH_PATH = "pg_catalog, pg_temp"

OnSchema = Callable[[BaseDatabaseSchemaEditor, str], None]


class SchemaOperation(ABC, Operation):
    """An operation on the worker schema, in one transaction. It does not change the state of Django's models."""

    reduces_to_sql = True
    reversible = True
    # The name under which the schema records that the operation has run; None for operations without a record.
    part: str | None = None

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: other operations create the models."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        self._perform(app_label, schema_editor, self.run_install, self.write_install)

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

    def run_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        with all_or_nothing(schema_editor.connection, schema):
            if self._is_installed(schema_editor.connection, schema):
                self.uninstall(schema_editor, schema)

    def _is_installed(self, connection: BaseDatabaseWrapper, schema: str) -> bool:
        with connection.cursor() as cursor:
            return self.part is not None and catalog.part(cursor, self.part, schema=schema) is not None

    @abstractmethod
    def install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Install what is missing in the database."""

    @abstractmethod
    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Run the statements for an empty database; sqlmigrate prints them."""

    @abstractmethod
    def uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        """Undo ``install``, and restore the database to the state before it."""

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
            path = locks.set_search_path(cursor, SEARCH_PATH)
            locks.lock_installation(cursor, schema=schema, lock_timeout=conf.current().migration_lock_timeout)
        yield
        with connection.cursor() as cursor:
            locks.set_search_path(cursor, path)


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
        holders = locks.lock_holders(cursor, schema=schema)
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
