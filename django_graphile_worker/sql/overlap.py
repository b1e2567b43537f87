"""Overlapping of the server's work with the client's, on a connection of Django."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from psycopg import Pipeline

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


@contextmanager
def overlapping(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Let the statements of the block run on the server while the block goes on, and wait for them at its end.

    The block must be in a transaction, and run no code of the project: in this mode a statement raises its error later,
    and COPY is not possible. Execute wrappers and the log of statements measure each statement and see its error. With
    them, each statement ends before the block goes on.
    """
    if connection.execute_wrappers or connection.queries_logged or not Pipeline.is_supported():
        yield
        return
    with connection.wrap_database_errors, connection.connection.pipeline():
        yield
