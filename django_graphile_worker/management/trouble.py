"""What keeps a worker from working, in a sentence."""

from __future__ import annotations

import psycopg
from psycopg import errors


def in_a_sentence(error: psycopg.Error) -> str:
    """What was expected of the database, and what it said."""
    said = " ".join(str(error).split())
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return f"Expected a database that can be written to, got a read-only one, a standby perhaps: {said}"
    if isinstance(error, psycopg.OperationalError):
        return f"Expected the database to answer, got: {said}"
    return f"Expected the database to do what the worker asks, got an error: {said}"
