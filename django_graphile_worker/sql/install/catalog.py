"""What exists of the worker schema: relations, functions, installed parts, ledger; and whether it can be used.

The ledger is graphile-worker's own table of migrations: it shows a schema that this package does not support.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from django_graphile_worker import __version__
from django_graphile_worker.exceptions import BreakingMigrationError, SchemaError
from django_graphile_worker.sql.install.privileges import hidden_tables
from django_graphile_worker.sql.statements import Cursor, qualified, statement
from django_graphile_worker.versions import is_older, release_of

# The last migration of graphile-worker that this version of the package supports.
LEDGER = 20

LATEST_BREAKING = """/* gw:breaking-migration */
select coalesce(pg_catalog.max(migrations.id), 0) from :SCHEMA.migrations as migrations where migrations.breaking"""

INSTALLED = """/* gw:installed */
select installed.part, installed.breaks_before from :SCHEMA._private_installation as installed"""

MAY_READ = """/* gw:may-read */
select class.relname
from pg_catalog.pg_class as class
join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
where namespace.nspname = %s and class.relname in ('migrations', '_private_installation')
  and pg_catalog.has_table_privilege(class.oid, 'select')
  and pg_catalog.has_schema_privilege(namespace.oid, 'usage')"""


def breaking_migration(cursor: Cursor, *, schema: str) -> BreakingMigrationError | None:
    """Return the error for a schema with a breaking migration that this version does not support, else None."""
    cursor.execute(statement(LATEST_BREAKING, schema))
    latest = int(cursor.fetchone()[0])
    return None if latest <= LEDGER else breaking_migration_error(latest, schema)


def installed_parts(cursor: Cursor, *, schema: str) -> dict[str, str | None]:
    """Return the parts that migrations of this package have installed, each with its ``breaks_before``."""
    cursor.execute(statement(INSTALLED, schema))
    return dict(cursor.fetchall())


def breaking_part(installed: Mapping[str, str | None], *, schema: str) -> BreakingMigrationError | None:
    """Return the error for a part that a later release has installed, and that this version cannot work with."""
    breaks = [version for version in installed.values() if version is not None and is_older(__version__, version)]
    if not breaks:
        return None
    return BreakingMigrationError(
        f"The schema {schema!r} belongs to a later release of django-graphile-worker: releases before "
        f"{max(breaks, key=release_of)} cannot work with it, and this is {__version__}. Upgrade django-graphile-worker."
    )


def _readable(cursor: Cursor, *, schema: str) -> set[str]:
    cursor.execute(qualified(MAY_READ), [schema])
    return {name for (name,) in cursor.fetchall()}


def has_newer_migration(cursor: Cursor, *, schema: str) -> bool:
    """Return True if a newer graphile-worker has migrated the schema, as far as the role may know."""
    return "migrations" in _readable(cursor, schema=schema) and ledger(cursor, schema=schema).latest > LEDGER


def refuse_breaking_migration(cursor: Cursor, *, schema: str) -> None:
    """Raise the error for a schema with a breaking migration that this version does not support.

    Look only at what the role may read.
    """
    readable = _readable(cursor, schema=schema)
    error = breaking_migration(cursor, schema=schema) if "migrations" in readable else None
    if error is None and "_private_installation" in readable:
        error = breaking_part(installed_parts(cursor, schema=schema), schema=schema)
    if error is not None:
        raise error


def breaking_migration_error(latest: int, schema: str) -> BreakingMigrationError:
    return BreakingMigrationError(
        f"The schema {schema!r} belongs to a newer graphile-worker, or to graphile_worker for Rust: its breaking "
        f"migration {latest} came after {LEDGER}. Upgrade django-graphile-worker to a version that supports it, "
        f'or choose another name with GRAPHILE_WORKER["SCHEMA"].'
    )


# The public functions, and the names and types of their arguments.
FUNCTIONS = MappingProxyType(
    {
        "add_job": (
            "identifier text, payload json, queue_name text, run_at timestamp with time zone, max_attempts integer, "
            "job_key text, priority integer, flags text[], job_key_mode text"
        ),
        "add_jobs": "specs job_spec[], job_key_preserve_run_at boolean",
        "complete_jobs": "job_ids bigint[]",
        "force_unlock_workers": "worker_ids text[]",
        "permanently_fail_jobs": "job_ids bigint[], error_message text",
        "remove_job": "job_key text",
        "reschedule_jobs": (
            "job_ids bigint[], run_at timestamp with time zone, priority integer, attempts integer, "
            "max_attempts integer"
        ),
    }
)
RELATIONS = frozenset(
    {
        "_private_job_queues",
        "_private_jobs",
        "_private_known_crontabs",
        "_private_tasks",
        "job_spec",
        "jobs",
        "migrations",
    }
)
# Every function of this package has a tag comment; functions of other programs have none.
TAG = "/* gw:"

# The method ``execute`` of a schema editor, which runs a statement, or collects it for sqlmigrate.
Execute = Callable[[str, Any], Any]


class Ledger(NamedTuple):
    """The latest migrations in the ledger."""

    latest: int
    latest_breaking: int


_RELATIONS = """
/* gw:relations */
select class.relname
from pg_catalog.pg_class as class
join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
where namespace.nspname = %s and class.relkind in ('r', 'p', 'v', 'm', 'f', 'c')
"""


def relations(cursor: Cursor, *, schema: str) -> frozenset[str]:
    """Return the names of the tables, views and composite types in the schema."""
    cursor.execute(qualified(_RELATIONS), (schema,))
    return frozenset(name for (name,) in cursor.fetchall())


_SCHEMA_EXISTS = "/* gw:schema_exists */ select exists (select from pg_catalog.pg_namespace where nspname = %s)"


def schema_exists(cursor: Cursor, *, schema: str) -> bool:
    """Return True if the schema exists, whatever it contains."""
    cursor.execute(qualified(_SCHEMA_EXISTS), (schema,))
    return bool(cursor.fetchone()[0])


_READ_LEDGER = """
/* gw:ledger */
select coalesce(max(id), 0), coalesce(max(id) filter (where (to_jsonb(migrations) ->> 'breaking')::boolean), 0)
from :SCHEMA.migrations as migrations
"""


def ledger(cursor: Cursor, *, schema: str) -> Ledger:
    """Read the ledger, graphile-worker's table of migrations; a very old table has no column ``breaking``."""
    cursor.execute(statement(_READ_LEDGER, schema))
    return Ledger(*cursor.fetchone())


class Function(NamedTuple):
    """A public function of the schema, as it is in the database."""

    name: str
    arguments: str
    definition: str

    @property
    def is_ours(self) -> bool:
        return f"{TAG}{self.name} */" in self.definition

    @property
    def is_as_expected(self) -> bool:
        """Whether it has the arguments of graphile-worker 0.18."""
        return re.sub(r"specs \S.*\.job_spec", "specs job_spec", self.arguments) == FUNCTIONS[self.name]


_FUNCTIONS = """
/* gw:functions */
select proc.proname, pg_catalog.pg_get_function_identity_arguments(proc.oid), pg_catalog.pg_get_functiondef(proc.oid)
from pg_catalog.pg_proc as proc
join pg_catalog.pg_namespace as namespace on namespace.oid = proc.pronamespace
where namespace.nspname = %s and proc.proname = any(%s) and proc.prokind = 'f'
order by proc.proname, 2
"""


def functions(cursor: Cursor, *, schema: str) -> list[Function]:
    """Return the public functions that exist in the schema, of this package or of another program."""
    cursor.execute(qualified(_FUNCTIONS), (schema, list(FUNCTIONS)))
    return [Function(*row) for row in cursor.fetchall()]


_HAS_FUNCTIONS = """
/* gw:has_functions */
select count(distinct proc.proname)
from pg_catalog.pg_proc as proc
join pg_catalog.pg_namespace as namespace on namespace.oid = proc.pronamespace
where namespace.nspname = %s and proc.proname = any(%s)
"""


def has_functions(cursor: Cursor, names: Sequence[str], *, schema: str) -> bool:
    """Return True if all these functions exist in the schema, whatever their arguments."""
    cursor.execute(qualified(_HAS_FUNCTIONS), (schema, list(names)))
    return int(cursor.fetchone()[0]) == len(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the worker schema that a migration has installed, and what was in the database before."""

    name: str
    is_schema_made: bool = False
    is_adopted: bool = False
    found_functions: Mapping[str, str] = field(default_factory=dict)


_PART = """
/* gw:part */
select part, is_schema_made, is_adopted, found_functions::text from :SCHEMA._private_installation where part = %s
"""


def part(cursor: Cursor, name: str, *, schema: str) -> Part | None:
    """Return the part with this name if it is installed."""
    if "_private_installation" not in relations(cursor, schema=schema):
        return None
    cursor.execute(statement(_PART, schema), (name,))
    row = cursor.fetchone()
    if row is None:
        return None
    return Part(name=row[0], is_schema_made=row[1], is_adopted=row[2], found_functions=json.loads(row[3]))


_RECORD_PART = """
/* gw:record_part */
insert into :SCHEMA._private_installation (part, is_schema_made, is_adopted, found_functions)
values (%s, %s, %s, %s::jsonb);
"""


def record_part(execute: Execute, made: Part, *, schema: str) -> None:
    """Record that the part is installed."""
    parameters = (made.name, made.is_schema_made, made.is_adopted, json.dumps(dict(made.found_functions)))
    execute(statement(_RECORD_PART, schema), parameters)


_ADD_FOUND_FUNCTIONS = """
/* gw:add_found_functions */
update :SCHEMA._private_installation set found_functions = found_functions || %s::jsonb where part = %s;
"""


def add_found_functions(execute: Execute, name: str, found: Mapping[str, str], *, schema: str) -> None:
    """Record the texts of functions that were found after the part was installed."""
    execute(statement(_ADD_FOUND_FUNCTIONS, schema), (json.dumps(dict(found)), name))


_RECORD_BREAK = """
/* gw:record_break */
update :SCHEMA._private_installation set breaks_before = %s where part = %s;
"""
# The channel of graphile-worker, whose workers stop if "breaking" is true. Those of this package look at the schema.
_ANNOUNCE = """/* gw:announce_break */ select pg_catalog.pg_notify('worker:migrate', '{"breaking": false}');"""


def record_break(execute: Execute, name: str, version: str, *, schema: str) -> None:
    """Record that workers of releases before this version cannot work with the part, and let workers look."""
    execute(statement(_RECORD_BREAK, schema), (version, name))
    execute(_ANNOUNCE, None)


_FORGET_PART = "/* gw:forget_part */ delete from :SCHEMA._private_installation where part = %s;"


def forget_part(execute: Execute, name: str, *, schema: str) -> None:
    """Delete the record of the part."""
    execute(statement(_FORGET_PART, schema), (name,))


_COUNT_WAITING = """
/* gw:count_waiting */
select count(*) from :SCHEMA._private_jobs where attempts < max_attempts or locked_at is not null
"""


def count_waiting_jobs(cursor: Cursor, *, schema: str) -> int:
    """Return the number of jobs that have attempts left or are running."""
    cursor.execute(statement(_COUNT_WAITING, schema))
    return int(cursor.fetchone()[0])


_CREATE_SCHEMA = "/* gw:install */ create schema :SCHEMA;"
_DROP_SCHEMA = "/* gw:uninstall */ drop schema :SCHEMA;"
_IS_EMPTY = """
/* gw:is_empty */
select not exists (
  select from pg_catalog.pg_depend
  where refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass::pg_catalog.oid
    and refobjid = (select oid from pg_catalog.pg_namespace where nspname = %s)
    and deptype = 'n'
)
"""


def create_schema(execute: Execute, *, schema: str) -> None:
    """Create the schema."""
    execute(statement(_CREATE_SCHEMA, schema), None)


def drop_schema(execute: Execute, *, schema: str) -> None:
    """Drop the schema, which must be empty."""
    execute(statement(_DROP_SCHEMA, schema), None)


def is_schema_empty(cursor: Cursor, *, schema: str) -> bool:
    """Return True if the schema is empty."""
    cursor.execute(qualified(_IS_EMPTY), (schema,))
    return bool(cursor.fetchone()[0])


def check_usable(cursor: Cursor, *, schema: str) -> None:
    """Raise SchemaError for a schema that is missing or incomplete, or whose rows are hidden from the current role."""
    missing = {*RELATIONS, "_private_installation"} - relations(cursor, schema=schema)
    if missing:
        raise SchemaError(
            f"There is no worker schema {schema!r}, or an incomplete one (without {', '.join(sorted(missing))}). "
            f'Run "manage.py migrate graphile_worker". If the schema was dropped or renamed after a migrate, '
            f'"manage.py check --database default" says what to do.'
        )
    role, tables = hidden_tables(cursor, schema=schema)
    if tables:
        raise SchemaError(
            f"Row-level security hides {', '.join(tables)} in {schema!r} from the role {role!r}, so every query would "
            f"find nothing, without an error. Connect as the owner of the tables, "
            f'or let the owner run what "manage.py graphile_worker grants {role}" prints.'
        )
