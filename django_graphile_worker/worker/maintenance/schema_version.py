"""Checks whether a newer graphile-worker has changed the schema in a way that this version does not support."""

from __future__ import annotations

import time
from collections.abc import Callable

from psycopg import errors

from django_graphile_worker.exceptions import BreakingMigrationError
from django_graphile_worker.sql.migrations_ledger import breaking_migration
from django_graphile_worker.worker.database.connection import Database


class SchemaVersion:
    """The check of the schema's version, which stops the worker, as the check of graphile-worker does."""

    def __init__(self, *, schema: str, interval: float, on_refused: Callable[[BreakingMigrationError], None]) -> None:
        self._schema = schema
        # Seconds between two checks of a worker that is not notified of a migration.
        self._interval = interval
        # Called once, when this worker cannot continue with the schema.
        self._on_refused = on_refused
        self._is_refused = False
        self._check_at = 0.0

    def check_soon(self) -> None:
        """Make the next check due: a migration was announced, or its announcement may have been missed."""
        self._check_at = 0.0

    def check_if_due(self, database: Database) -> None:
        """Report, once, a schema that this version does not support."""
        if time.monotonic() < self._check_at:
            return
        # Before the query: a migration that is announced during the query makes another check due.
        self._check_at = time.monotonic() + self._interval
        try:
            error = self.find_error(database)
        except BaseException:
            self.check_soon()
            raise
        if error is not None and not self._is_refused:
            self._is_refused = True
            self.write_event(database, error)
            self._on_refused(error)

    def write_event(self, database: Database, error: BreakingMigrationError) -> None:
        """Write the event that tells operators why workers stop: of all workers and starts, one event an hour."""
        # Late import: needed only by a worker that stops.
        from django_graphile_worker.sql.events import ERROR, NewEvent
        from django_graphile_worker.worker.event_writer import write_event

        hour = str(int(time.time() // 3600))
        event = NewEvent(
            kind="schema_refused", subject="", severity=ERROR, details={"error": str(error)}, identity=hour
        )
        write_event(database, event)

    def find_error(self, database: Database) -> BreakingMigrationError | None:
        try:
            with database.cursor() as cursor:
                return breaking_migration(cursor, schema=self._schema)
        except (errors.InsufficientPrivilege, errors.UndefinedTable):
            # The worker needs the table of migrations for nothing but this check.
            return None
