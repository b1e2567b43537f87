"""The indexes that our files add to tables which may be in use, and large.

An index that is built inside a migration's transaction keeps everybody from adding
jobs until the whole of it is done, and a transaction that holds the tables of jobs and
of queues can deadlock with workers, which lock both. Where others may be working the
indexes are therefore left out there, and built afterwards, one after the other: on a
large table without a lock that anybody would notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from django_graphile_worker.sql.install.catalog import Run
from django_graphile_worker.sql.jobs import Cursor
from django_graphile_worker.sql.qualification import qualified
from django_graphile_worker.sql.schema import ddl, quoted, statement

# What is smaller than this is indexed before anybody has waited long: tens of milliseconds for each.
LARGE = 16 * 1024 * 1024

# The files whose indexes a finished migrate has built.
FILES = ("workers.sql", "claims.sql", "statistics.sql", "end_claims_v2.sql", "claim_looks_v2.sql")
REMEDY = 'Run "manage.py graphile_worker repair". Jobs can be added and run meanwhile.'

# A statement of its own, at the beginning of a line.
_CREATE_INDEX = re.compile(r"^create index (?P<name>\w+) (?P<definition>on .*?);\n?", re.MULTILINE | re.DOTALL)


class Index(NamedTuple):
    """An index as a file of sql/ddl describes it."""

    name: str
    definition: str

    @property
    def statement(self) -> str:
        return f"create index if not exists {self.name} {self.definition};"

    @property
    def unhurried_statement(self) -> str:
        """Two scans of the table instead of one, and everybody goes on meanwhile."""
        return f"/* gw:install */ create index concurrently if not exists {self.name} {self.definition};"


def indexes_of(filenames: Iterable[str], *, schema: str) -> list[Index]:
    """The indexes that these files make."""
    found = (_CREATE_INDEX.finditer(ddl(filename, schema)) for filename in filenames)
    return [Index(match["name"], match["definition"]) for matches in found for match in matches]


def without_indexes(text: str, names: Iterable[str]) -> str:
    """A file's text, but for these indexes."""
    unwanted = set(names)
    return _CREATE_INDEX.sub(lambda match: "" if match["name"] in unwanted else match[0], text)


_SIZE = """
/* gw:table_size */
select coalesce(max(pg_catalog.pg_relation_size(class.oid)), 0)
from pg_catalog.pg_class as class
join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
where namespace.nspname = %s and class.relname in ('_private_jobs', '_private_job_queues')
"""


def is_any_table_large(cursor: Cursor, *, schema: str) -> bool:
    """Tell whether building an index would keep others waiting."""
    return _largest(cursor, schema) >= LARGE


def has_any_table_rows(cursor: Cursor, *, schema: str) -> bool:
    """Tell whether jobs have been added, so that workers may be busy with them."""
    return _largest(cursor, schema) > 0


def _largest(cursor: Cursor, schema: str) -> int:
    cursor.execute(qualified(_SIZE), (schema,))
    return int(cursor.fetchone()[0])


_INDEXES = """
/* gw:indexes */
select class.relname, index.indisvalid
from pg_catalog.pg_index as index
join pg_catalog.pg_class as class on class.oid = index.indexrelid
join pg_catalog.pg_namespace as namespace on namespace.oid = class.relnamespace
where namespace.nspname = %s
"""


def existing_indexes(cursor: Cursor, *, schema: str) -> dict[str, bool]:
    """The names of the indexes that are there, and whether each is complete."""
    cursor.execute(qualified(_INDEXES), (schema,))
    return dict(cursor.fetchall())


class Lack(NamedTuple):
    """The indexes that are not there, and those that are not complete: they are being built, or nobody ended it."""

    missing: tuple[str, ...]
    incomplete: tuple[str, ...]


def lacking_indexes(cursor: Cursor, *, schema: str) -> Lack:
    """What is not as a finished migrate leaves it."""
    existing = existing_indexes(cursor, schema=schema)
    wanted = [index.name for index in indexes_of(FILES, schema=schema)]
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


def is_somebody_building(cursor: Cursor, *, schema: str) -> bool:
    """Tell whether an index of the schema is just being built: another migrate, or a person."""
    cursor.execute(qualified(_IS_BUILDING), (schema,))
    return bool(cursor.fetchone()[0])


# Whoever builds an index holds this lock all the while.
_LOCK_OUT_BUILDERS = """/* gw:lock_indexes */
lock table :SCHEMA._private_jobs, :SCHEMA._private_job_queues in share update exclusive mode"""


def lock_out_builders(cursor: Cursor, *, schema: str) -> None:
    """Let nobody build an index until the transaction ends: one that is incomplete now is a leftover."""
    cursor.execute(statement(_LOCK_OUT_BUILDERS, schema))


def drop_indexes(run: Run, names: Iterable[str], *, schema: str) -> None:
    for name in names:
        run(f"/* gw:uninstall */ drop index if exists {quoted(schema)}.{quoted(name)};", None)
