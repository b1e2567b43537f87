"""What of the worker schema is there, whose it is, and what stands in the way."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from django_graphile_worker.sql.schema import quoted, statement

LEDGER = 20
FUNCTIONS = (
    "add_job",
    "add_jobs",
    "complete_jobs",
    "force_unlock_workers",
    "permanently_fail_jobs",
    "remove_job",
    "reschedule_jobs",
)
TABLES = ("_private_job_queues", "_private_jobs", "_private_known_crontabs", "_private_tasks")


class Cursor(Protocol):
    """What Django's cursors and psycopg's have in common."""

    def execute(self, query: Any, params: Any = None, /) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Ledger:
    """How far graphile-worker's own migrations have come."""

    latest: int
    latest_breaking: int


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A session that keeps a migration waiting."""

    pid: int
    application_name: str
    user: str
    state: str
    since: datetime | None
    query: str


_RELATIONS = """
/* gw:relations */
select class.relname
from pg_catalog.pg_class as class
join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
where namespace.nspname = %s and class.relkind in ('r', 'p', 'v', 'm', 'f', 'c')
"""


def relations(cursor: Cursor, *, schema: str) -> frozenset[str]:
    """Return the names of the tables, views and composite types in the schema."""
    cursor.execute(_RELATIONS, (schema,))
    return frozenset(name for (name,) in cursor.fetchall())


_SCHEMA_EXISTS = "/* gw:schema_exists */ select exists (select from pg_catalog.pg_namespace where nspname = %s)"


def schema_exists(cursor: Cursor, *, schema: str) -> bool:
    """Tell whether there is such a schema, whatever is in it."""
    cursor.execute(_SCHEMA_EXISTS, (schema,))
    return bool(cursor.fetchone()[0])


_LEDGER = """
/* gw:ledger */
select coalesce(max(id), 0), coalesce(max(id) filter (where (to_jsonb(migrations) ->> 'breaking')::boolean), 0)
from :SCHEMA.migrations as migrations
"""


def ledger(cursor: Cursor, *, schema: str) -> Ledger:
    """Read graphile-worker's migration table; very old ones have no column `breaking`."""
    cursor.execute(statement(_LEDGER, schema))
    return Ledger(*cursor.fetchone())


_OVERLOADS = """
/* gw:overloads */
select proc.proname, pg_catalog.pg_get_function_identity_arguments(proc.oid), pg_catalog.pg_get_functiondef(proc.oid)
from pg_catalog.pg_proc as proc
join pg_catalog.pg_namespace as namespace on namespace.oid = proc.pronamespace
where namespace.nspname = %s and proc.proname = any(%s) and proc.prokind = 'f'
order by proc.proname, 2
"""


def function_definitions(cursor: Cursor, *, schema: str) -> list[tuple[str, str, str]]:
    """Return (name, arguments, definition) of each public function that is there."""
    cursor.execute(_OVERLOADS, (schema, list(FUNCTIONS)))
    return list(cursor.fetchall())


_PART = "/* gw:part */ select is_schema_made, is_adopted, found_functions from :SCHEMA._private_installation where part = %s"


@dataclass(frozen=True, slots=True)
class Part:
    """Something of ours that is installed, and what was there before it."""

    is_schema_made: bool
    is_adopted: bool
    found_functions: tuple[str, ...]


def part(cursor: Cursor, name: str, *, schema: str) -> Part | None:
    """Return the part if it is installed."""
    if "_private_installation" not in relations(cursor, schema=schema):
        return None
    cursor.execute(statement(_PART, schema), (name,))
    row = cursor.fetchone()
    return row and Part(row[0], row[1], tuple(row[2]))


_RECORD_PART = """
/* gw:record_part */
insert into :SCHEMA._private_installation (part, is_schema_made, is_adopted, found_functions)
values (%s, %s, %s, %s)
"""


def record_part(cursor: Cursor, name: str, made: Part, *, schema: str) -> None:
    """Remember that the part is installed."""
    parameters = (name, made.is_schema_made, made.is_adopted, list(made.found_functions))
    cursor.execute(statement(_RECORD_PART, schema), parameters)


_FORGET_PART = "/* gw:forget_part */ delete from :SCHEMA._private_installation where part = %s"


def forget_part(cursor: Cursor, name: str, *, schema: str) -> None:
    """Forget the part."""
    cursor.execute(statement(_FORGET_PART, schema), (name,))


_COUNT_WAITING = """
/* gw:count_waiting */
select count(*) from :SCHEMA._private_jobs where attempts < max_attempts or locked_at is not null
"""


def count_waiting_jobs(cursor: Cursor, *, schema: str) -> int:
    """Return how many jobs still have something to do."""
    cursor.execute(statement(_COUNT_WAITING, schema))
    return int(cursor.fetchone()[0])


_SET_LOCK_TIMEOUT = "/* gw:lock_timeout */ select pg_catalog.set_config('lock_timeout', %s, true)"
_LOCK_INSTALLATION = """
/* gw:lock_installation */
select pg_catalog.pg_advisory_xact_lock(
  pg_catalog.hashtext('graphile_worker.installation'), pg_catalog.hashtext(%s)
)
"""


def lock_installation(cursor: Cursor, *, schema: str, lock_timeout: float) -> None:
    """Let one migrate at a time past this point, and wait for no lock longer than the timeout."""
    cursor.execute(_SET_LOCK_TIMEOUT, (f"{max(1, round(lock_timeout * 1000))}ms",))
    cursor.execute(_LOCK_INSTALLATION, (schema,))


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
    cursor.execute(_LOCK_HOLDERS, {"schema": schema})
    return [LockHolder(*row) for row in cursor.fetchall()]


def create_schema(schema: str) -> str:
    """Return the statement that makes the schema."""
    return f"/* gw:install */ create schema {quoted(schema)};"


def drop_schema(schema: str) -> str:
    """Return the statement that drops the empty schema."""
    return f"/* gw:uninstall */ drop schema {quoted(schema)};"
