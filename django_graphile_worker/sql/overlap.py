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


def measures_statements(connection: BaseDatabaseWrapper) -> bool:
    """Return whether the project's execute wrappers or the log of statements see each statement."""
    return bool(connection.execute_wrappers) or connection.queries_logged


def is_in_pipeline(connection: BaseDatabaseWrapper) -> bool:
    """Return whether the project has begun the driver's ``pipeline()``; 0 is its status outside of it."""
    return bool(connection.connection.info.pipeline_status != 0)


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

    if measures_statements(connection) or not Pipeline.is_supported():
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


class Copying:
    """Rows that the server inserts by COPY, while the client makes the next rows; see ``copying``."""

    def __init__(self, connection: BaseDatabaseWrapper, statement: str) -> None:
        # How many COPY statements were begun.
        self.copies = 0
        self._connection = connection
        self._statement = statement
        self._mode = ExitStack()
        self._copy: Any = None

    def write(self, lines: str) -> None:
        """Send rows in the text format of COPY."""
        with self._connection.wrap_database_errors, _without_rows():
            if self._copy is None:
                self.copies += 1
                cursor = self._mode.enter_context(self._connection.connection.cursor())
                self._copy = self._mode.enter_context(cursor.copy(self._statement))
            self._copy.write(lines)

    def end(self) -> None:
        """Wait until the server has inserted the rows, and raise its error. The next rows begin another COPY."""
        self._copy = None
        with self._connection.wrap_database_errors, _without_rows():
            self._mode.close()

    def end_for_others(self, execute: Any, *arguments: Any) -> Any:
        """Run a statement of other code, as an execute wrapper: a connection that copies takes no other statements."""
        self.end()
        return execute(*arguments)


@contextmanager
def _without_rows() -> Iterator[None]:
    """Leave out of the text of an error the row that the server was inserting: it has a payload."""
    # Late import: without psycopg 3, the checks must be able to load the API and report what is missing.
    from psycopg import Error as DriverError

    try:
        yield
    except DriverError as error:
        if error.diag.message_primary:
            detail = f"\nDETAIL:  {error.diag.message_detail}" if error.diag.message_detail else ""
            error.args = (error.diag.message_primary + detail,)
        raise


@contextmanager
def copying(connection: BaseDatabaseWrapper, statement: str) -> Iterator[Copying]:
    """Let the server insert the rows that the block writes while the block goes on, and wait for it at the end.

    The block must be in a transaction, and must end COPY before it calls code of the project, which may use the
    connection. Statements that Django executes end it themselves. If the block raises an error, COPY ends as usual, so
    that the driver does not send the text of the error to the log of the server; the caller undoes the transaction.
    """
    rows = Copying(connection, statement)
    with connection.execute_wrapper(rows.end_for_others):
        try:
            yield rows
        except BaseException:
            with suppress(Error):
                rows.end()
            raise
    rows.end()
