"""The locks of a migration: how long the migration waits for them, and which sessions hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_graphile_worker.sql.schema import statement
from django_graphile_worker.sql.search_path import qualified

if TYPE_CHECKING:
    from datetime import datetime

    from django_graphile_worker.sql.cursor import Cursor

# A migrate that waits for another migrate blocks no other session, so it may wait until the other has finished.
SECONDS_FOR_ANOTHER_MIGRATION = 60.0


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A session that holds a lock for which a migration waits."""

    pid: int
    application_name: str
    user: str
    state: str
    since: datetime | None
    query: str

    def __str__(self) -> str:
        return (
            f"pid {self.pid} (user {self.user!r}, application {self.application_name!r}, {self.state}, "
            f"since {self.since}, last statement {self.query!r})"
        )


_SET_LOCK_TIMEOUT = "/* gw:lock_timeout */ select pg_catalog.set_config('lock_timeout', %s, true)"
# For the first installation, when there is no table to lock yet. Any role of the database can take an advisory lock and
# so block a migrate; later migrations lock a table instead.
_LOCK_FIRST_INSTALLATION = """
/* gw:lock_installation */
select pg_catalog.pg_advisory_xact_lock(
  pg_catalog.hashtext('graphile_worker.installation'), pg_catalog.hashtext(%s)
)
"""
# The table may not exist any more when the lock is granted: another session may have migrated back to zero.
_LOCK_INSTALLATION = """
/* gw:lock_installation */
do $do$
begin
  lock table :SCHEMA._private_installation in share row exclusive mode;
exception when undefined_table or invalid_schema_name then
  null;
end
$do$
"""
_IS_INSTALLED = "/* gw:is_installed */ select pg_catalog.to_regclass(':SCHEMA._private_installation') is not null"


def lock_installation(cursor: Cursor, *, schema: str, lock_timeout: float) -> None:
    """Wait until no other migrate has passed this point, and limit every later wait for a lock to the timeout."""
    set_lock_timeout(cursor, max(SECONDS_FOR_ANOTHER_MIGRATION, lock_timeout))
    if not _lock_table(cursor, schema):
        cursor.execute(_LOCK_FIRST_INSTALLATION, (schema,))
        _lock_table(cursor, schema)
    set_lock_timeout(cursor, lock_timeout)


def _lock_table(cursor: Cursor, schema: str) -> bool:
    """Lock the table of installed parts; return False if it does not exist."""
    cursor.execute(statement(_LOCK_INSTALLATION, schema))
    cursor.execute(statement(_IS_INSTALLED, schema))
    return bool(cursor.fetchone()[0])


_SEARCH_PATH = """/* gw:search_path */
select pg_catalog.current_setting('search_path'), pg_catalog.set_config('search_path', %s, true)"""


def set_search_path(cursor: Cursor, path: str) -> str:
    """Change the search_path until the transaction ends; return the old search_path."""
    cursor.execute(_SEARCH_PATH, (path,))
    return str(cursor.fetchone()[0])


def set_lock_timeout(cursor: Cursor, seconds: float) -> None:
    """Limit every wait for a lock until the transaction ends."""
    cursor.execute(qualified(_SET_LOCK_TIMEOUT), (f"{max(1, round(seconds * 1000))}ms",))


_LOCK_LEDGER = "/* gw:lock_ledger */ lock table :SCHEMA.migrations in share row exclusive mode"


def lock_ledger(cursor: Cursor, *, schema: str) -> None:
    """Let no migration of graphile-worker run until the transaction ends."""
    cursor.execute(statement(_LOCK_LEDGER, schema))


_LOCK_JOBS = "/* gw:lock_jobs */ lock table :SCHEMA._private_jobs in access exclusive mode"


def lock_jobs(cursor: Cursor, *, schema: str) -> None:
    """Let no other session add, read or run jobs until the transaction ends."""
    cursor.execute(statement(_LOCK_JOBS, schema))


_LOCK_HOLDERS = """
/* gw:lock_holders */
select distinct activity.pid, activity.application_name, activity.usename, activity.state,
  coalesce(activity.xact_start, activity.query_start), left(activity.query, 200)
from pg_catalog.pg_locks as locks
join pg_catalog.pg_stat_activity as activity on activity.pid = locks.pid
where locks.granted
  and locks.pid <> pg_catalog.pg_backend_pid()
  and locks.database = (select oid from pg_catalog.pg_database where datname = current_database())
  and (
    locks.relation in (
      select class.oid
      from pg_catalog.pg_class as class
      join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
      where namespace.nspname = %(schema)s
    )
    or (
      locks.locktype = 'advisory'
      and locks.classid::bigint = pg_catalog.hashtext('graphile_worker.installation')::bigint & 4294967295
      and locks.objid::bigint = pg_catalog.hashtext(%(schema)s)::bigint & 4294967295
    )
  )
order by activity.pid
"""


def lock_holders(cursor: Cursor, *, schema: str) -> list[LockHolder]:
    """Return the other sessions that hold a lock on anything in the schema."""
    cursor.execute(qualified(_LOCK_HOLDERS), {"schema": schema})
    return [LockHolder(*row) for row in cursor.fetchall()]
