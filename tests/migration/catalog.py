"""The catalog of PostgreSQL about a worker schema, as text: a line for each fact."""

from __future__ import annotations

from typing import Any

import psycopg

# The objects of graphile-worker itself. The other objects in the schema belong to this package, and may change.
RELATIONS = [
    "_private_job_queues",
    "_private_jobs",
    "_private_known_crontabs",
    "_private_tasks",
    "job_queues_id_seq",
    "job_spec",
    "jobs",
    "jobs_id_seq1",
    "migrations",
    "tasks_id_seq",
]
INDEXES = [
    "job_queues_pkey1",
    "job_queues_queue_name_key",
    "jobs_key_key1",
    "jobs_main_index",
    "jobs_no_queue_index",
    "jobs_pkey1",
    "known_crontabs_pkey",
    "migrations_pkey",
    "tasks_identifier_key",
    "tasks_pkey",
]

FACTS = """
with space as (
  select oid from pg_namespace where nspname = %(schema)s
), relations as (
  select pg_class.*
  from pg_class, space
  where relnamespace = space.oid and (%(everything)s or relname = any(%(relations)s))
), indexes as (
  select pg_class.*
  from pg_class, space
  where relnamespace = space.oid and relkind = 'i' and (%(everything)s or relname = any(%(indexes)s))
), functions as (
  select pg_proc.*
  from pg_proc, space
  where pronamespace = space.oid and (%(everything)s or not starts_with(proname, '_private'))
)

select format('relation %%s %%s rls=%%s forced=%%s options=%%s',
  relkind, relname, relrowsecurity, relforcerowsecurity,
  -- How full the pages of jobs are belongs to this package.
  case when %(everything)s then reloptions else nullif(array_remove(reloptions, 'fillfactor=40'), '{}') end)
from relations where relkind in ('r', 'v', 'c', 'S')

union all
select format('column %%s.%%s %%s %%s null=%%s identity=%%s generated=%%s default=%%s',
  relname, row_number() over (partition by relname order by attnum), attname, format_type(atttypid, atttypmod),
  not attnotnull, attidentity, attgenerated, pg_get_expr(adbin, adrelid))
from relations
join pg_attribute on attrelid = relations.oid
left join pg_attrdef on adrelid = relations.oid and adnum = attnum
where relkind in ('r', 'v', 'c') and attnum > 0 and not attisdropped

union all
select format('constraint %%s %%s %%s', relname, conname, pg_get_constraintdef(pg_constraint.oid))
from relations
join pg_constraint on conrelid = relations.oid
where contype <> 'n' or %(with_not_null)s

union all
select format('index %%s', pg_get_indexdef(oid)) from indexes

union all
select format('sequence %%s %%s start=%%s increment=%%s min=%%s max=%%s cache=%%s cycle=%%s owner=%%s.%%s',
  relname, format_type(seqtypid, null), seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle,
  refobjid::regclass, refobjsubid)
from relations
join pg_sequence on seqrelid = relations.oid
join pg_depend on pg_depend.objid = relations.oid and deptype = 'i' and refclassid = 'pg_class'::regclass

union all
select format('view %%s %%s', relname, pg_get_viewdef(oid)) from relations where relkind = 'v'

union all
select format('trigger %%s %%s', relname, tgname)
from relations
join pg_trigger on tgrelid = relations.oid
where not tgisinternal

union all
select format('policy %%s %%s', relname, polname) from relations join pg_policy on polrelid = relations.oid

union all
select format('function %%s(%%s) returns %%s volatile=%%s strict=%%s definer=%%s parallel=%%s kind=%%s acl=%%s',
  proname, pg_get_function_arguments(oid), pg_get_function_result(oid), provolatile, proisstrict, prosecdef,
  proparallel, prokind, proacl)
from functions

union all
select pg_get_functiondef(oid) from functions where %(everything)s
"""

LEDGER = "select format('ledger %s breaking=%s', id, breaking) from {schema}.migrations"


def catalog(connection: psycopg.Connection[Any], schema: str, *, with_not_null: bool = False) -> str:
    """Return every fact about graphile-worker's own objects, with SCHEMA for the name of the schema.

    PostgreSQL 18 gives each NOT NULL a name; older versions do not, so the text leaves the names out.
    """
    text = _facts(connection, schema, everything=False, with_not_null=with_not_null)
    return text.replace(f'"{schema}"', "SCHEMA").replace(schema, "SCHEMA")


def dump(connection: psycopg.Connection[Any], schema: str) -> str:
    """Return every fact about all objects in the schema, with the text of each function."""
    return _facts(connection, schema, everything=True, with_not_null=True)


def _facts(connection: psycopg.Connection[Any], schema: str, **options: bool) -> str:
    parameters = {"schema": schema, "relations": RELATIONS, "indexes": INDEXES, **options}
    # With an empty search path PostgreSQL prints every name with its schema.
    connection.execute("set search_path = ''")
    facts = connection.execute(FACTS.encode(), parameters).fetchall()
    facts += connection.execute(LEDGER.replace("{schema}", f'"{schema}"').encode()).fetchall()
    return "".join(sorted(f"{fact}\n" for (fact,) in facts))
