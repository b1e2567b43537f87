"""Expressions that make any stored value readable to Python."""

from __future__ import annotations

FIRST = "timestamptz '0001-01-02 00:00:00+00'"
LAST = "timestamptz '9999-12-30 23:59:59.999999+00'"


def as_text(column: str) -> str:
    """Leave the decoding to the reader, who can do it value by value."""
    return f"{column}::pg_catalog.text"


def within_python_years(column: str) -> str:
    """Bring infinities and far years to the nearest time that is in years 1 to 9999 in every time zone."""
    return f"case when {column} < {FIRST} then {FIRST} when {column} > {LAST} then {LAST} else {column} end"
