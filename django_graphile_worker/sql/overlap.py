"""The state of a connection of Django: its transactions, and the overlapping of the server's work with the client's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from django.db import Error

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

    The block must be in a transaction. In this mode a statement raises its error later, has no ``rowcount``, and
    there are no server-side cursors. Code of the project that runs in the block (a lazy payload, a log handler) relies
    on them: its first statement ends the mode. Execute wrappers and the log of statements measure each statement and
    see its error. With them, each statement ends before the block goes on.
    """
    # Late import: without psycopg 3, the checks must be able to load the API and report what is missing.
    from psycopg import Pipeline

    if connection.execute_wrappers or connection.queries_logged or not Pipeline.is_supported():
        yield
        return
    with ExitStack() as mode:

        def end_for_others(execute: Any, sql: Any, *arguments: Any) -> Any:
            if not str(sql).startswith("/* gw:add_job"):
                mode.close()
            return execute(sql, *arguments)

        mode.enter_context(connection.wrap_database_errors)
        mode.enter_context(connection.connection.pipeline())
        with connection.execute_wrapper(end_for_others):
            try:
                yield
            except BaseException:
                # The driver logs what it finds at the end of the mode if it knows that there is an error already.
                with suppress(Error):
                    mode.close()
                raise
