"""The regular checks that no job depends on: the version of the schema, tasks without a worker, and the backlog."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors

from django_graphile_worker.exceptions import BreakingMigrationError, SchemaError
from django_graphile_worker.sql import statistics
from django_graphile_worker.sql.errors import older_schema
from django_graphile_worker.sql.events import ERROR, NewEvent
from django_graphile_worker.sql.inspection.overview import unserved_tasks
from django_graphile_worker.sql.install.catalog import breaking_migration, breaking_part, installed_parts
from django_graphile_worker.sql.install.installer import PARTS
from django_graphile_worker.worker.database.connection import Database, limited_transaction
from django_graphile_worker.worker.service import Service, jittered

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# Seconds until the first look for unserved tasks: workers that are started together have registered by then.
FIRST_LOOK = 15.0
LOOK_INTERVAL = 120.0
# Seconds until the next sample of the backlog after one that failed, for example because it took too long.
SAMPLE_RETRY_INTERVAL = 600.0
# Seconds that a sample may take: the recovery of dead workers' jobs waits for it. Counts that take longer than their
# part of it are estimated.
LONGEST_SAMPLE = 3.0
LONGEST_COUNT = 0.5


class SchemaVersion:
    """Checks whether a newer graphile-worker, or a later release, has changed the schema so that this one is broken.

    Then the worker stops, as graphile-worker does.
    """

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker
        # Seconds between two checks of a worker that is not notified of a migration. A check waits for the next
        # recovery, which follows within a quarter of the timeout.
        self._interval = worker.settings.worker_timeout * 0.75
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
        if isinstance(error, BreakingMigrationError) and not self._is_refused:
            self._is_refused = True
            self.write_event(database, error)
            self._worker.schema_refused(error)

    def write_event(self, database: Database, error: BreakingMigrationError) -> None:
        """Write the event that says why workers stop: of all workers and starts, one event an hour."""
        hour = str(int(time.time() // 3600))
        event = NewEvent(
            kind="schema_refused", subject="", severity=ERROR, details={"error": str(error)}, identity=hour
        )
        self._worker.reports.write(database, event)

    def find_error(self, database: Database) -> SchemaError | None:
        """Return the error for the schema of a later release, or of an earlier one."""
        schema = self._worker.settings.schema
        try:
            with database.cursor() as cursor:
                if error := breaking_migration(cursor, schema=schema):
                    return error
                installed = installed_parts(cursor, schema=schema)
        except (errors.InsufficientPrivilege, errors.UndefinedTable):
            # The worker needs these tables for nothing but this check.
            return None
        missing = [part for part in PARTS if part not in installed]
        older = SchemaError(older_schema(database.alias, schema, missing)) if missing else None
        return breaking_part(installed, schema=schema) or older


class UnservedTasks(Service):
    """The service that reports tasks that have jobs but no live worker: a mistyped name, or a missing deployment.

    Each such task is reported once, and again if it was served in between. Errors of the database are not reported: the
    parts that run jobs report the same errors.
    """

    name = "unserved-tasks"

    def __init__(self, worker: DatabaseWorker) -> None:
        super().__init__(on_trouble=worker.reports.other_trouble)
        self._worker = worker
        self._database = worker.database("unserved-tasks")
        self._reported: frozenset[str] = frozenset()
        self._has_waited = False

    def step(self) -> float:
        if not self._has_waited:
            self._has_waited = True
            return FIRST_LOOK
        names = frozenset(self._find())
        unreported = sorted(names - self._reported)
        self._reported = names
        if unreported:
            self._worker.reports.tasks_unserved(unreported)
        return jittered(LOOK_INTERVAL)

    def _find(self) -> list[str]:
        timeout = self._worker.settings.worker_timeout
        try:
            with self._database.cursor() as cursor:
                found = unserved_tasks(cursor, schema=self._database.schema, timeout=timeout)
        finally:
            # A connection is expensive; a look every two minutes does not justify keeping it open.
            self._database.close()
        return [task.identifier for task in found]

    def close(self) -> None:
        self._database.close()


class BacklogSampler:
    """The samples of the backlog, for the charts of the admin: in each minute, the first worker that asks takes one.

    An error costs samples and nothing else, so it is reported and not raised.
    """

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker
        self._next_at = 0.0

    def sample(self, database: Database) -> None:
        """Count the jobs in each state, if no worker has done so in this minute."""
        if time.monotonic() < self._next_at:
            return
        schema, now = database.schema, self._worker.now()
        try:
            with database.cursor() as cursor:
                if not statistics.is_sampled(cursor, schema=schema, now=now):
                    self._take(cursor, min(LONGEST_SAMPLE, database.deadline), schema, now)
            # Until the next minute there is nothing to ask the database, however far its clock is from this one.
            self._next_at = time.monotonic() + 60.0 - time.time() % 60.0
        except psycopg.Error as error:
            self._next_at = time.monotonic() + SAMPLE_RETRY_INTERVAL
            self._worker.reports.database_trouble("backlog samples", error, SAMPLE_RETRY_INTERVAL)

    def _take(self, cursor: Any, longest: float, schema: str, now: datetime | None) -> None:
        """Count the jobs, or estimate their number: dead rows that no VACUUM can remove yet make counts slow."""
        try:
            with limited_transaction(cursor.connection, min(LONGEST_COUNT, longest)):
                statistics.sample_backlog(cursor, schema=schema, now=now)
        except errors.QueryCanceled:
            with limited_transaction(cursor.connection, longest):
                statistics.sample_backlog(cursor, schema=schema, now=now, most=0)
