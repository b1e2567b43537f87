"""Empties the tables of a test database: only tables with rows, and only large tables with a slow TRUNCATE."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg

# What the migrations have written, which tests only read.
KEPT = ["migrations", "_private_installation", "django_migrations", "django_content_type", "auth_permission"]

# Each table is locked, also if it is empty: a session that a test has left behind may have rows that are not committed.
# TRUNCATE makes new files for the table and for each of its indexes, which takes the server four times as long as to
# delete a few rows. But deleted rows stay in the files, so a table that has grown is truncated: the planner takes any
# table of up to ten pages for one of ten pages. As in TRUNCATE, no trigger and no foreign key counts.
EMPTY = """
do $$
declare
    table_name text;
    has_rows boolean;
    grown text[] := '{}';
begin
    set local session_replication_role = replica;
    for table_name in
        select format('%%I.%%I', schemaname, tablename) from pg_tables
        where schemaname = any (%(schemas)s) and not tablename = any (%(kept)s) order by 1
    loop
        execute 'lock table ' || table_name || ' in access exclusive mode';
        execute 'select exists (select from ' || table_name || ')' into has_rows;
        if has_rows and pg_relation_size(table_name) > %(grown)s then
            grown := grown || table_name;
        elsif has_rows then
            execute 'delete from ' || table_name;
        end if;
    end loop;
    if cardinality(grown) > 0 then
        execute 'truncate ' || array_to_string(grown, ', ') || ' cascade';
    end if;
end $$"""
GROWN = 8 * 8192
ATTEMPTS = 5


def empty_tables(connection: psycopg.Connection[Any], schemas: Sequence[str]) -> None:
    """Empty all tables of the schemas but those that record what is installed. Wait for sessions that hold locks."""
    parameters = {"schemas": list(schemas), "kept": KEPT, "grown": GROWN}
    for _ in range(ATTEMPTS - 1):
        # A request that a browser test has left behind may read tables in another order. It ends by itself.
        with suppress(psycopg.errors.DeadlockDetected):
            psycopg.ClientCursor(connection).execute(EMPTY, parameters)
            return
    psycopg.ClientCursor(connection).execute(EMPTY, parameters)


# The planner knows again as little of the tables as after the migration.
FORGET = """
do $$
declare
    used text;
begin
    select string_agg(oid::regclass::text, ', ') into used
    from pg_class
    where relnamespace = %(schema)s::regnamespace and relkind = 'r' and not relname = any (%(kept)s)
        and (reltuples <> -1 or pg_relation_size(oid) > 0);
    if used is not null then
        execute 'truncate ' || used || ' restart identity cascade';
        delete from pg_statistic using pg_class
        where starelid = pg_class.oid and relnamespace = %(schema)s::regnamespace;
    end if;
end $$"""


def forget_everything(connection: psycopg.Connection[Any], schema: str) -> None:
    """Empty the tables of the schema, and delete what the planner knows of them."""
    psycopg.ClientCursor(connection).execute(FORGET, {"schema": f'"{schema}"', "kept": KEPT})
