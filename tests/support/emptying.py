"""Empties the tables after a test that commits. Only tables that the test has written to are truncated."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.test import TransactionTestCase

# A table that was not written to since it was truncated has no pages.
WRITTEN = """
select format('%%I.%%I', schemaname, tablename) from pg_catalog.pg_tables
where schemaname = %s and not tablename = any (%s)
    and pg_relation_size(format('%%I.%%I', schemaname, tablename)::regclass) > 0"""
# What `migrate` has written, which tests need.
MIGRATED = ["django_migrations", "django_content_type", "auth_permission"]
COUNT_MIGRATED = "select (select count(*) from django_content_type), (select count(*) from auth_permission)"

_migrated: dict[str, tuple[int, int]] = {}

flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]


def truncate_written(cursor: Any, schema: str, *, kept: list[str]) -> None:
    """Truncate the tables of a schema that have pages, except those to keep. Fail if a test has left a lock behind."""
    cursor.execute(WRITTEN, [schema, kept])
    names = ", ".join(name for (name,) in cursor.fetchall())
    if names:
        cursor.execute(f"truncate {names} cascade")


def remember_migrated(alias: str, cursor: Any) -> None:
    """Note how many rows `migrate` has written to a database, before the first test that commits to it."""
    if alias not in _migrated:
        _migrated[alias] = _count_migrated(cursor)


def empty_tables(case: Any) -> None:
    """Do what Django's flush does, which truncates every table, and makes content types and permissions again."""
    for alias in case._databases_names(include_mirrors=False):
        with connections[alias].cursor() as cursor:
            if _count_migrated(cursor) != _migrated.get(alias):
                flush(case)
                return
            truncate_written(cursor, "public", kept=MIGRATED)


def _count_migrated(cursor: Any) -> tuple[int, int]:
    cursor.execute(COUNT_MIGRATED)
    return tuple(cursor.fetchone())
