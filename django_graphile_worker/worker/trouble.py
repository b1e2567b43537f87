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
