"""The ledger, graphile-worker's own table of migrations: detects a schema that this package does not support."""

from __future__ import annotations

from django_graphile_worker.exceptions import BreakingMigrationError
from django_graphile_worker.sql.statements import Cursor, statement

# The last migration of graphile-worker that this version of the package supports.
LEDGER = 20

LATEST_BREAKING = """/* gw:breaking-migration */
select coalesce(pg_catalog.max(migrations.id), 0) from :SCHEMA.migrations as migrations where migrations.breaking"""

MAY_READ = """/* gw:may-read-ledger */
select exists (
  select from pg_catalog.pg_class as class
  join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
  where namespace.nspname = %s and class.relname = 'migrations'
    and pg_catalog.has_table_privilege(class.oid, 'select')
    and pg_catalog.has_schema_privilege(namespace.oid, 'usage'))"""


def breaking_migration(cursor: Cursor, *, schema: str) -> BreakingMigrationError | None:
    """Return the error for a schema with a breaking migration that this version does not support, else None."""
    cursor.execute(statement(LATEST_BREAKING, schema))
    latest = int(cursor.fetchone()[0])
    return None if latest <= LEDGER else error_of(latest, schema)


def refuse_breaking_migration(cursor: Cursor, *, schema: str) -> None:
    """Raise the error for a schema with a breaking migration that this version does not support.

    Do nothing if the role may not read the ledger.
    """
    cursor.execute(MAY_READ, [schema])
    if cursor.fetchone()[0]:
        error = breaking_migration(cursor, schema=schema)
        if error is not None:
            raise error


def error_of(latest: int, schema: str) -> BreakingMigrationError:
    return BreakingMigrationError(
        f"The schema {schema!r} belongs to a newer graphile-worker, or to graphile_worker for Rust: expected no "
        f"breaking migration after {LEDGER}, got {latest}. Upgrade django-graphile-worker to a version that supports "
        f'it, or choose another name with GRAPHILE_WORKER["SCHEMA"].'
    )
