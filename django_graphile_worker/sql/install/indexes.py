"""The indexes that indexes.sql adds to the tables of jobs and of queues, which may be large and in use.

Those that graphile-worker itself has are examined, and built again if somebody has dropped them.

While an index is built inside the transaction of a migration, no other session can add jobs until the transaction ends.
A transaction that locks the tables of jobs and of queues can also deadlock with workers, which lock both. So the
indexes are built one after the other, each in its own transaction; on a large table with a lock for which other
sessions do not wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from django_graphile_worker.sql.install.catalog import Execute, has_newer_migration
from django_graphile_worker.sql.statements import Cursor, ddl, qualified, quoted, statement

# The size in bytes from which a table is large. An index of a smaller table takes tens of milliseconds.
LARGE = 16 * 1024 * 1024

REMEDY = 'Run "manage.py graphile_worker repair". Jobs can be added and run meanwhile.'

# A whole statement that starts at the beginning of a line.
_CREATE_INDEX = re.compile(r"^create index (?P<name>\w+) (?P<definition>on .*?);\n?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Index:
    """An index as a file of ddl describes it."""

    name: str
    definition: str

    @property
    def statement(self) -> str:
        return f"create index if not exists {self.name} {self.definition};"

    @property
    def concurrent_statement(self) -> str:
        """The statement that scans the table twice instead of once, and lets other sessions write meanwhile."""
        return f"/* gw:install */ create index concurrently if not exists {self.name} {self.definition};"


def wanted_indexes(*, schema: str) -> list[Index]:
    """Return the indexes that migrate adds."""
    return _indexes_of("indexes.sql", schema)


def expected_indexes(cursor: Cursor, *, schema: str) -> list[Index]:
    """Return the indexes that exist after a complete migrate: those that it adds, and those of graphile-worker itself.

    A newer graphile-worker may have dropped its own.
    """
    if has_newer_migration(cursor, schema=schema):
        return wanted_indexes(schema=schema)
    return [*wanted_indexes(schema=schema), *_indexes_of("graphile_worker.sql", schema)]


def _indexes_of(filename: str, schema: str) -> list[Index]:
    matches = _CREATE_INDEX.finditer(ddl(filename, schema))
    return [Index(match["name"], match["definition"]) for match in matches]


_SIZE = """
/* gw:table_size */
select coalesce(max(pg_catalog.pg_relation_size(class.oid)), 0)
from pg_catalog.pg_class as class
join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
where namespace.nspname = %s and class.relname in ('_private_jobs', '_private_job_queues')
"""


def is_any_table_large(cursor: Cursor, *, schema: str) -> bool:
    """Return True if other sessions would wait long while an index is built."""
    cursor.execute(qualified(_SIZE), (schema,))
    return int(cursor.fetchone()[0]) >= LARGE


_INDEXES = """
/* gw:indexes */
select class.relname, index.indisvalid
from pg_catalog.pg_index as index
join pg_catalog.pg_class as class on class.oid = index.indexrelid
join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
where namespace.nspname = %s
"""


def existing_indexes(cursor: Cursor, *, schema: str) -> dict[str, bool]:
    """Return the names of the indexes that exist, with whether each is complete."""
    cursor.execute(qualified(_INDEXES), (schema,))
    return dict(cursor.fetchall())


class Lack(NamedTuple):
    """The indexes that do not exist, and incomplete indexes: still being built, or interrupted."""

    missing: tuple[str, ...]
    incomplete: tuple[str, ...]


def lacking_indexes(cursor: Cursor, *, schema: str) -> Lack:
    """Return the indexes that are missing or incomplete; after a complete migrate there are none."""
    existing = existing_indexes(cursor, schema=schema)
    wanted = [index.name for index in expected_indexes(cursor, schema=schema)]
    return Lack(
        tuple(name for name in wanted if name not in existing),
        tuple(name for name in wanted if not existing.get(name, True)),
    )


_IS_BUILDING = """
/* gw:is_building */
select exists (
  select from pg_catalog.pg_stat_progress_create_index as progress
  join pg_catalog.pg_class as class on class.oid = progress.relid
  join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
  where namespace.nspname = %s and progress.datname = pg_catalog.current_database()
)
"""


def is_build_running(cursor: Cursor, *, schema: str) -> bool:
    """Return True if a session is building an index of the schema now: another migrate, or an operator."""
    cursor.execute(qualified(_IS_BUILDING), (schema,))
    return bool(cursor.fetchone()[0])


# A session that builds an index concurrently holds this lock until it has finished.
_LOCK_OUT_BUILDS = """/* gw:lock_indexes */
lock table :SCHEMA._private_jobs, :SCHEMA._private_job_queues in share update exclusive mode"""


def lock_out_builds(cursor: Cursor, *, schema: str) -> None:
    """Let no session build an index until the transaction ends. An index that is incomplete now was interrupted."""
    cursor.execute(statement(_LOCK_OUT_BUILDS, schema))


def drop_indexes(execute: Execute, names: Iterable[str], *, schema: str) -> None:
    """Drop the indexes that exist among these names."""
    for name in names:
        execute(f"/* gw:uninstall */ drop index if exists {quoted(schema)}.{quoted(name)};", None)
