"""What keeps a worker from working, in a sentence."""

from __future__ import annotations

import psycopg
from psycopg import errors


def in_a_sentence(error: psycopg.Error, alias: str = "") -> str:
    """What was expected of the database, and what it said; its alias, where there are several."""
    said = " ".join(str(error).split())
    name = f" {alias!r}" if alias else ""
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return f"Expected a database{name} that can be written to, got a read-only one, a standby perhaps: {said}"
    if isinstance(error, psycopg.OperationalError):
        return f"Expected the database{name} to answer, got: {said}"
    return f"Expected the database{name} to do what the worker asks, got an error: {said}"


# What libpq reports when it cannot connect has no SQLSTATE; where messages are translated, these are not recognised.
_WILL_NOT_PASS = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "is not permitted to log in",
    "permission denied",
    "invalid connection option",
)


def may_pass(error: psycopg.OperationalError) -> bool:
    """Tell whether it is worth waiting: a server that starts is, a wrong password is not."""
    code = error.sqlstate or ""
    said = str(error)
    return not code.startswith(("28", "3D")) and not any(words in said for words in _WILL_NOT_PASS)
