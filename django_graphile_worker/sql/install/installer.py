"""Make the worker schema, adopt a schema that graphile-worker made, undo both, and restore the public functions.

The locks of a migration are at the end: how long it waits for them, and which sessions hold them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.sql.install import catalog
from django_graphile_worker.sql.install.catalog import (
    LEDGER,
    Execute,
    Function,
    Ledger,
    Part,
    breaking_migration_error,
)
from django_graphile_worker.sql.statements import Cursor, ddl, qualified, quoted, statement

# The oldest major version of PostgreSQL on which the functions of this package run.
OLDEST_POSTGRESQL = 15
# A migrate that waits for another migrate blocks no other session, so it may wait until the other has finished.
SECONDS_FOR_ANOTHER_MIGRATION = 60.0
# The parts that the migrations install, in their order.
WORKER_SCHEMA = "graphile_worker"
TABLES = "tables"
FUNCTIONS = "functions"
# All of them: workers of this version do not start on a schema that lacks one.
PARTS = (WORKER_SCHEMA, TABLES, FUNCTIONS)
PUBLIC_FUNCTIONS = "public_functions.sql"
TABLE_FILES = ("graphile_worker.sql", "installation.sql", "tables.sql")
FUNCTION_FILES = (
    "adding.sql",
    "claims.sql",
    "ends_of_claims.sql",
    "recovery.sql",
    "history.sql",
    "limits.sql",
    "schedules.sql",
    "statistics.sql",
    "operators.sql",
    PUBLIC_FUNCTIONS,
)
_PRIVATE_FUNCTION = re.compile(
    r"^create or replace (?P<kind>function|procedure) (?P<name>\S+?\._private_\w+)", re.MULTILINE
)
# A function with its text, which PostgreSQL keeps as it is. A function in the form of the SQL standard has no text.
_WRITTEN = re.compile(
    r'^create or replace (?:function|procedure) (?:"[^"]+")+\.(?P<name>\w+)'
    r"(?:(?:(?!^create ).)*?\bas (?P<quote>\$\w*\$)(?P<text>.*?)(?P=quote))?",
    re.MULTILINE | re.DOTALL,
)
_DROP = """/* gw:uninstall */
drop view :SCHEMA.jobs;
drop type :SCHEMA.job_spec;
-- Marks of graphile_worker for Rust on these jobs: its migration 22 may have made the table since.
drop table if exists :SCHEMA._private_job_retirements;
drop table :SCHEMA._private_jobs;
drop table :SCHEMA._private_job_queues;
drop table :SCHEMA._private_tasks;
drop table :SCHEMA._private_known_crontabs;
drop table :SCHEMA.migrations;
"""
_CHECK_OWNER = """/* gw:check_owner */
do $do$
begin
  if to_regclass(':SCHEMA._private_jobs') is not null and not (
    select pg_has_role(relowner, 'usage') from pg_class where oid = ':SCHEMA._private_jobs'::regclass)
  then
    raise insufficient_privilege using message = 'must be owner of table _private_jobs';
  end if;
end
$do$"""
_DROP_INSTALLATION = "/* gw:uninstall */ drop table :SCHEMA._private_installation;"


def make(execute: Execute, *, schema: str, is_schema_made: bool) -> None:
    """Make the worker schema; without ``is_schema_made``, inside a schema that exists already and is empty."""
    if is_schema_made:
        catalog.create_schema(execute, schema=schema)
    for filename in ("graphile_worker.sql", "installation.sql"):
        execute(ddl(filename, schema), None)
    catalog.record_part(execute, Part(name=WORKER_SCHEMA, is_schema_made=is_schema_made), schema=schema)


def adopt(execute: Execute, cursor: Cursor, *, schema: str) -> None:
    """Check that the schema is as graphile-worker makes it, and record that it was found."""
    cursor.execute(statement(_CHECK_OWNER, schema))
    lock_ledger(cursor, schema=schema)
    relations = catalog.relations(cursor, schema=schema)
    _refuse_rust(relations, schema)
    check_ledger(catalog.ledger(cursor, schema=schema), schema)
    missing = catalog.RELATIONS - relations
    if missing:
        raise SchemaError(
            f"The schema {schema!r} lacks what graphile-worker's migration {LEDGER} leaves: "
            f'{", ".join(sorted(missing))}. Repair it, or choose another name with GRAPHILE_WORKER["SCHEMA"].'
        )
    _check_arguments(catalog.functions(cursor, schema=schema), schema)
    execute(ddl("installation.sql", schema), None)
    catalog.record_part(execute, Part(name=WORKER_SCHEMA, is_adopted=True), schema=schema)


def create_tables(execute: Execute, *, schema: str) -> None:
    """Create the tables of this package, and let the roles that may read or change jobs use them."""
    for filename in ("tables.sql", "grants.sql"):
        execute(ddl(filename, schema), None)
    catalog.record_part(execute, Part(name=TABLES), schema=schema)


def create_functions(execute: Execute, *, schema: str) -> None:
    """Create the functions of this package, and replace the public functions."""
    for filename in FUNCTION_FILES:
        execute(ddl(filename, schema), None)
    catalog.record_part(execute, Part(name=FUNCTIONS), schema=schema)


def uninstall(execute: Execute, *, schema: str) -> None:
    """Drop the tables and private functions of this package."""
    found = (_PRIVATE_FUNCTION.finditer(ddl(filename, schema)) for filename in FUNCTION_FILES)
    drops = [f"drop {match['kind']} if exists {match['name']};" for matches in found for match in matches]
    # The last one first: a function may depend on earlier ones.
    execute(ddl("uninstall.sql", schema).replace(":DROP_FUNCTIONS", "\n".join(reversed(drops))), None)
    catalog.forget_part(execute, TABLES, schema=schema)


def too_old(connection: Any) -> str | None:
    """Return the error for the server of a connection of Django; None if it is new enough."""
    version = connection.pg_version // 10_000
    if version >= OLDEST_POSTGRESQL:
        return None
    return (
        f"The database {connection.alias!r} is PostgreSQL {version}. Jobs need PostgreSQL {OLDEST_POSTGRESQL} or newer."
    )


def foreign_functions(cursor: Cursor, *, schema: str) -> list[Function]:
    """Return the public functions that another program has made, instead of this package's or beside them."""
    return [function for function in catalog.functions(cursor, schema=schema) if not function.is_ours]


def missing_functions(cursor: Cursor, *, schema: str) -> list[str]:
    """Return the names of the public functions that this package makes and that do not exist."""
    existing = {function.name for function in catalog.functions(cursor, schema=schema) if function.is_ours}
    return [name for name in catalog.FUNCTIONS if name not in existing]


_CREATE_TABLE = re.compile(r'^create (?:unlogged )?table (?:"[^"]+")+\.(\w+)', re.MULTILINE)


def missing_tables(cursor: Cursor, *, schema: str) -> list[str]:
    """Return the tables that a complete migrate makes and that do not exist."""
    wanted = [name for filename in TABLE_FILES for name in _CREATE_TABLE.findall(ddl(filename, schema))]
    existing = catalog.relations(cursor, schema=schema)
    return [name for name in wanted if name not in existing]


_TEXTS = """
/* gw:function_texts */
select proc.proname, proc.prosrc from pg_catalog.pg_proc as proc
join pg_catalog.pg_namespace as namespace on namespace.oid = proc.pronamespace
where namespace.nspname = %s
"""


def changed_functions(cursor: Cursor, *, schema: str) -> dict[str, str]:
    """Return the functions that are missing, or have other texts than this version installs, with their files."""
    cursor.execute(qualified(_TEXTS), (schema,))
    texts: dict[str, set[str]] = {}
    for name, text in cursor.fetchall():
        texts.setdefault(name, set()).add(text)
    return {
        found["name"]: filename
        for filename in FUNCTION_FILES
        for found in _WRITTEN.finditer(ddl(filename, schema))
        if (found["text"] or "") not in texts.get(found["name"], ())
    }


def restore_functions(execute: Execute, filenames: Iterable[str] = (PUBLIC_FUNCTIONS,), *, schema: str) -> None:
    """Restore the functions of files. Raise a database error 42P13 if a foreign function cannot be replaced."""
    for filename in filenames:
        execute(ddl(filename, schema), None)


def drop_functions(execute: Execute, functions: Iterable[Function], *, schema: str) -> None:
    """Drop the functions; raise a database error if another object depends on them."""
    for function in functions:
        name = f"{quoted(schema)}.{quoted(function.name)}"
        execute(f"/* gw:uninstall */ drop function {name}({function.arguments});", None)


def restore_found_functions(execute: Execute, cursor: Cursor, *, schema: str) -> None:
    """Restore the public functions that an adopted schema had, where they are still ours."""
    found = catalog.part(cursor, WORKER_SCHEMA, schema=schema)
    if found is None or not found.is_adopted:
        return
    for function in catalog.functions(cursor, schema=schema):
        if function.is_ours and function.name in found.found_functions:
            execute(found.found_functions[function.name], None)
        elif function.is_ours:
            drop_functions(execute, [function], schema=schema)


def keep_foreign_functions(execute: Execute, cursor: Cursor, *, schema: str) -> None:
    """Record the texts of foreign functions before they are replaced: ``restore_found_functions`` restores them."""
    found = {function.name: function.definition for function in foreign_functions(cursor, schema=schema)}
    if found:
        catalog.add_found_functions(execute, WORKER_SCHEMA, found, schema=schema)


def drop(execute: Execute, *, schema: str) -> None:
    """Drop everything that make() made, and the public functions; not the schema itself.

    No cascade: what somebody built upon these objects is for them to drop.
    """
    for name in catalog.FUNCTIONS:
        execute(f"/* gw:uninstall */ drop function if exists {quoted(schema)}.{quoted(name)};", None)
    execute(statement(_DROP, schema), None)
    drop_installation(execute, schema=schema)


def drop_installation(execute: Execute, *, schema: str) -> None:
    """Drop the record of the installed parts."""
    execute(statement(_DROP_INSTALLATION, schema), None)


def _refuse_rust(relations: frozenset[str], schema: str) -> None:
    """Raise for a schema of graphile_worker for Rust, whose table of workers has the name of this package's."""
    if "_private_workers" in relations:
        raise SchemaError(
            f"The schema {schema!r} belongs to graphile_worker for Rust, whose table _private_workers is in the way. "
            f"Nothing was changed. To take over its jobs, stop the Rust workers, drop the table and the functions of "
            f"their recovery (see the guide: Sharing a queue with Node.js), and migrate again. Or choose another name "
            f'with GRAPHILE_WORKER["SCHEMA"].'
        )


def check_ledger(ledger: Ledger, schema: str) -> None:
    """Raise for a ledger that is older than this package, or breaking; warn of a newer ledger."""
    if ledger.latest < LEDGER:
        raise SchemaError(
            f"The schema {schema!r} was made by an older graphile-worker: it is at migration {ledger.latest}, and "
            f"{LEDGER} is needed. Upgrade it with graphile-worker 0.18, and migrate again: "
            f"npx graphile-worker@0.18 --schema-only --schema {schema} --connection postgres://..."
        )
    if ledger.latest_breaking > LEDGER:
        raise breaking_migration_error(ledger.latest_breaking, schema)
    if ledger.latest > LEDGER:
        warnings.warn(
            f"The schema {schema!r} is at migration {ledger.latest} of graphile-worker; this version of "
            f"django-graphile-worker supports migrations up to {LEDGER}. The newer migrations are not marked as "
            f"breaking, so the schema is used.",
            RuntimeWarning,
            stacklevel=2,
        )


def _check_arguments(found: Iterable[Function], schema: str) -> None:
    """Raise for public functions that could not be replaced, or would make calls ambiguous."""
    others = sorted({function.name for function in found if not function.is_as_expected})
    if others:
        raise SchemaError(
            f"In the schema {schema!r}, {', '.join(others)} have other arguments than in graphile-worker 0.18. Calls "
            f"would be ambiguous, so nothing was changed. Upgrade django-graphile-worker to a version that supports "
            f"them, or drop the functions that you added."
        )


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
