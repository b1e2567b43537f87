"""The state of a connection of Django: its transactions, and the overlapping of the server's work with the client's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def is_outside_transactions(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a statement on the connection is a transaction by itself.

    Django knows only its own transactions. The driver also knows those that ``cursor.execute("BEGIN")``, the driver's
    ``transaction()`` or its ``pipeline()`` has begun; 0 is its status outside of them.
    """
    return connection.get_autocommit() and connection.connection.info.transaction_status == 0


@contextmanager
def overlapping(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Let the statements of the block run on the server while the block goes on, and wait for them at its end.

    The block must be in a transaction, and run no code of the project: in this mode a statement raises its error later,
    and COPY is not possible. Execute wrappers and the log of statements measure each statement and see its error. With
    them, each statement ends before the block goes on.
    """
    # Late import: without psycopg 3, the checks must be able to load the API and report what is missing.
    from psycopg import Pipeline

    if connection.execute_wrappers or connection.queries_logged or not Pipeline.is_supported():
        yield
        return
    with connection.wrap_database_errors, connection.connection.pipeline():
        yield
