"""Checks whether a newer graphile-worker has changed the schema in a way that this version does not support."""

from __future__ import annotations

from collections.abc import Callable

from psycopg import errors

from django_graphile_worker.exceptions import BreakingMigrationError
from django_graphile_worker.sql.migrations_ledger import breaking_migration
from django_graphile_worker.worker.database.connection import Database


class SchemaVersion:
    """The check of the schema's version, which stops the worker, as the check of graphile-worker does."""

    def __init__(self, *, schema: str, on_refused: Callable[[BreakingMigrationError], None]) -> None:
        self._schema = schema
        # Called once, when this worker cannot continue with the schema.
        self._on_refused = on_refused
        self._is_refused = False

    def check(self, database: Database) -> None:
        """Report, once, a schema that this version does not support."""
        error = self.find_error(database)
        if error is not None and not self._is_refused:
            self._is_refused = True
            self._on_refused(error)

    def find_error(self, database: Database) -> BreakingMigrationError | None:
        try:
            with database.cursor() as cursor:
                return breaking_migration(cursor, schema=self._schema)
        except (errors.InsufficientPrivilege, errors.UndefinedTable):
            # The worker needs the table of migrations for nothing but this check.
            return None
