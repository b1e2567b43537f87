"""Advice that log lines about errors of the database end with."""

from __future__ import annotations

# undefined_function, undefined_table and undefined_column: the code is newer than the schema.
INCOMPLETE_SCHEMA = frozenset({"42883", "42P01", "42703"})
MIGRATE = '; the worker schema lacks something that this version needs: run "manage.py migrate graphile_worker"'


def advice_about(error: object) -> str:
    """Return what to do about an error, as the end of a line; "" if the error says enough."""
    return MIGRATE if getattr(error, "sqlstate", None) in INCOMPLETE_SCHEMA else ""
