"""Empties the tables of a test database. Only tables with rows are truncated, because that takes long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

# What the migrations have written, which tests only read.
KEPT = ["migrations", "_private_installation", "django_migrations", "django_content_type", "auth_permission"]

# Each table is locked, also if it is empty: a session that a test has left behind may have rows that are not committed.
EMPTY = """
do $$
declare
    table_name text;
    has_rows boolean;
    filled text[] := '{}';
begin
    for table_name in
        select format('%%I.%%I', schemaname, tablename) from pg_tables
        where schemaname = any (%(schemas)s) and not tablename = any (%(kept)s) order by 1
    loop
        execute 'lock table ' || table_name || ' in access exclusive mode';
        execute 'select exists (select from ' || table_name || ')' into has_rows;
        if has_rows then
            filled := filled || table_name;
        end if;
    end loop;
    if cardinality(filled) > 0 then
        execute 'truncate ' || array_to_string(filled, ', ') || ' cascade';
    end if;
end $$"""


def empty_tables(connection: psycopg.Connection[Any], schemas: Sequence[str]) -> None:
    """Empty all tables of the schemas but those that record what is installed. Wait for sessions that hold locks."""
    psycopg.ClientCursor(connection).execute(EMPTY, {"schemas": list(schemas), "kept": KEPT})
