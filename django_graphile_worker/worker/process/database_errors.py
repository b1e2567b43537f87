"""Database errors as sentences, for the user that starts a worker."""

from __future__ import annotations

import psycopg
from psycopg import errors


def in_a_sentence(error: psycopg.Error, alias: str = "") -> str:
    """Return a sentence with the expectation and the error, and with the alias if there are several databases."""
    text = " ".join(str(error).split())
    name = f" {alias!r}" if alias else ""
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return f"Expected a database{name} that can be written to, got a read-only one, a standby perhaps: {text}"
    if isinstance(error, psycopg.OperationalError):
        return f"Expected the database{name} to answer, got: {text}"
    return f"Expected the database{name} to run the worker's statements, got an error: {text}"


# Errors of libpq that do not pass with time. They have no SQLSTATE; a translated message is not recognised.
_LASTING_ERRORS = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "is not permitted to log in",
    "permission denied",
    "invalid connection option",
)


def may_pass(error: psycopg.OperationalError) -> bool:
    """Return True for an error that may pass with time, as of a server that starts; not for a wrong password."""
    code = error.sqlstate or ""
    text = str(error)
    return not code.startswith(("28", "3D")) and not any(words in text for words in _LASTING_ERRORS)
