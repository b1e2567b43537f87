"""Django's connections of a test, as its worker and its jobs find them.

The worker of a test works on the connection of the test (``CallerDatabase``), inside the transaction of the test if
there is one. A job finds all open connections as it finds them in a worker (``JobConnections``).

A worker runs jobs in autocommit mode: each statement commits, a statement that fails undoes nothing but itself,
``atomic()`` begins a transaction, and hooks of ``on_commit()`` are called when it ends. Inside the transaction of a
``TestCase`` nothing commits. So, while a job runs, each statement has a savepoint, and a transaction of the job
is a savepoint, too: to begin, commit and roll it back is to create, release and roll back that savepoint
(``VirtualAutocommit``).

The attributes and methods of Django's ``DatabaseWrapper`` that are replaced here are not documented; tests watch them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

import psycopg
from django.db import connections
from django.db.transaction import TransactionManagementError
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from django_graphile_worker.exceptions import LeftoverStateError
from django_graphile_worker.routing import Place, queue_connection
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.django_connections import transaction_status

_TRANSACTION = "gw_transaction"
_STATEMENT = "gw_statement"
# The state of a connection in autocommit mode.
_AUTOCOMMIT: dict[str, Any] = {
    "in_atomic_block": False,
    "autocommit": True,
    "commit_on_exit": True,
    "needs_rollback": False,
    "rollback_exc": None,
    "closed_in_transaction": False,
    "run_commit_hooks_on_set_autocommit_on": False,
}
_LISTS = ("savepoint_ids", "atomic_blocks", "run_on_commit")
_METHODS = ("_set_autocommit", "_commit", "_rollback", "close")
# SQLite's own way to begin a transaction.
_SQLITE_BEGIN = "_start_transaction_under_autocommit"


class CallerDatabase(Database):
    """The connection of a test. It stays in the transaction of the test, and is never closed.

    Statements go past Django's cursor: they are those of a worker, so ``assertNumQueries()`` does not count them.
    """

    def __init__(self, place: Place) -> None:
        self.alias = place.using
        self.schema = place.settings.schema
        self.wrapper = queue_connection(place.using)
        self.prepared = set()

    def begin(self) -> None:
        """Open the connection; raise the error of a test that may not use the database, or whose transaction failed."""
        if "cursor" in vars(self.wrapper):
            # A test without a database has replaced the method by one that raises.
            self.wrapper.cursor()
        self.wrapper.ensure_connection()
        self.wrapper.validate_no_broken_transaction()
        if transaction_status(self.wrapper) == TransactionStatus.INERROR:
            raise TransactionManagementError(
                "run_jobs(): a statement has failed in this transaction, so that it cannot be used. Put the statement "
                "that may fail into an atomic() block of its own."
            )

    @property
    def is_in_transaction(self) -> bool:
        return bool(self.wrapper.in_atomic_block)

    @property
    def keeps_statements(self) -> bool:
        return False

    @property
    def current(self) -> psycopg.Connection[Any] | None:
        connection: psycopg.Connection[Any] | None = self.wrapper.connection
        return connection

    def connection(self) -> psycopg.Connection[Any]:
        self.wrapper.ensure_connection()
        connection: psycopg.Connection[Any] = self.wrapper.connection
        return connection

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        # Django's cursors write parameters into the statement. The functions of the worker take real parameters.
        yield psycopg.Cursor(self.connection(), row_factory=tuple_row)

    @contextmanager
    def cursor_of_job(self) -> Iterator[Any]:
        """Yield a cursor in the transaction of a job, which refuses and raises what Django's cursor does."""
        with self.wrapper.wrap_database_errors, self.cursor() as cursor:
            if cursor.connection.closed:
                raise psycopg.OperationalError("the connection is closed")
            self.wrapper.validate_no_broken_transaction()
            yield cursor

    def close(self) -> None:
        """Leave the connection open: it belongs to the test."""


class JobConnections:
    """All open connections: those in a transaction of the test look as if they were in autocommit mode."""

    def __init__(self) -> None:
        self._virtual: dict[str, VirtualAutocommit] = {}
        self._plain: list[Any] = []

    def __enter__(self) -> JobConnections:
        for wrapper in connections.all(initialized_only=True):
            if wrapper.connection is None:
                continue
            if wrapper.in_atomic_block and wrapper.features.uses_savepoints:
                self._virtual[wrapper.alias] = VirtualAutocommit(wrapper)
                self._virtual[wrapper.alias].begin()
            elif not wrapper.in_atomic_block:
                self._plain.append(wrapper)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            for virtual in self._virtual.values():
                stack.callback(virtual.end)

    def roll_back_leftovers(self) -> None:
        """Roll back transactions that a job left open; raise LeftoverStateError if there are any."""
        left = [alias for alias, virtual in self._virtual.items() if virtual.roll_back_leftover()]
        left += [wrapper.alias for wrapper in self._plain if _roll_back(wrapper)]
        if left:
            databases = ", ".join(f"database {alias!r}" for alias in left)
            raise LeftoverStateError(
                f"The task left a transaction open ({databases}), which was rolled back. Use transaction.atomic()."
            )


def _roll_back(wrapper: Any) -> bool:
    if wrapper.connection is None:
        return False
    is_open = wrapper.in_atomic_block or not wrapper.autocommit
    if wrapper.vendor == "postgresql":
        is_open = is_open or transaction_status(wrapper) in (TransactionStatus.INTRANS, TransactionStatus.INERROR)
    if is_open:
        wrapper.in_atomic_block, wrapper.needs_rollback = False, False
        wrapper.savepoint_ids, wrapper.atomic_blocks = [], []
        wrapper.rollback()
        wrapper.set_autocommit(True)
    return bool(is_open)


class VirtualAutocommit:
    """One connection inside the transaction of a test, while a job runs."""

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper
        self._has_transaction = False
        self._has_statement = False
        self._before: dict[str, Any] = {}

    def begin(self) -> None:
        """Let the connection look as if it were in autocommit mode."""
        wrapper = self._wrapper
        self._before = {name: getattr(wrapper, name) for name in (*_AUTOCOMMIT, *_LISTS)}
        vars(wrapper).update(_AUTOCOMMIT, **{name: [] for name in _LISTS})
        vars(wrapper).update({name: getattr(self, name.lstrip("_")) for name in _METHODS})
        if hasattr(wrapper, _SQLITE_BEGIN):
            vars(wrapper)[_SQLITE_BEGIN] = self._begin_transaction
        wrapper.execute_wrappers.insert(0, self._execute)

    def end(self) -> None:
        """Restore the connection of the test. A transaction that the job left open is rolled back."""
        wrapper = self._wrapper
        self.roll_back_leftover()
        wrapper.execute_wrappers.remove(self._execute)
        for name in (*_METHODS, _SQLITE_BEGIN):
            vars(wrapper).pop(name, None)
        vars(wrapper).update(self._before)
        if self._has_statement:
            self._undo_failed_statement()
            self._send(f"RELEASE SAVEPOINT {_STATEMENT}")

    def roll_back_leftover(self) -> bool:
        """Roll back what the job left open; return whether there was anything."""
        wrapper = self._wrapper
        has_leftover = self._has_transaction or bool(wrapper.in_atomic_block)
        if self._has_transaction:
            self.rollback()
        vars(wrapper).update(_AUTOCOMMIT, **{name: [] for name in _LISTS})
        return has_leftover

    # These replace methods of the connection.

    def set_autocommit(self, autocommit: bool) -> None:
        if not autocommit:
            self._begin_transaction()
        elif self._has_transaction:
            self.commit()

    def commit(self) -> None:
        if self._has_transaction:
            self._has_transaction = False
            self._send(f"RELEASE SAVEPOINT {_TRANSACTION}")

    def rollback(self) -> None:
        if self._has_transaction:
            self._has_transaction = False
            self._send(f"ROLLBACK TO SAVEPOINT {_TRANSACTION}; RELEASE SAVEPOINT {_TRANSACTION}")

    def close(self) -> None:
        """Leave the connection open: in a worker the next statement would open another."""

    def _begin_transaction(self) -> None:
        self._send(f"SAVEPOINT {_TRANSACTION}")
        self._has_transaction = True

    def _execute(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        """Execute a statement of the job. Django calls it as an execute wrapper."""
        wrapper = self._wrapper
        if wrapper.autocommit:
            return self._execute_alone(execute, sql, params, many, context)
        if not self._has_transaction:
            # The job manages its transactions itself, and this statement begins the next one.
            self._begin_transaction()
        return execute(sql, params, many, context)

    def _execute_alone(self, execute: Any, *arguments: Any) -> Any:
        if _aborts_on_error(self._wrapper):
            release = f"RELEASE SAVEPOINT {_STATEMENT}; " if self._has_statement else ""
            self._send(f"{release}SAVEPOINT {_STATEMENT}")
            self._has_statement = True
        try:
            return execute(*arguments)
        except BaseException:
            self._undo_failed_statement()
            raise

    def _undo_failed_statement(self) -> None:
        connection = self._wrapper.connection
        if self._has_statement and connection.info.transaction_status == TransactionStatus.INERROR:
            self._send(f"ROLLBACK TO SAVEPOINT {_STATEMENT}")

    def _send(self, statements: str) -> None:
        wrapper = self._wrapper
        if _aborts_on_error(wrapper):
            # Directly, as a cursor of the driver takes three times as long, for each statement of a job.
            result = wrapper.connection.pgconn.exec_(statements.encode())
            if result.error_message:
                raise RuntimeError(f"{statements}: {result.get_error_message()}")
        else:
            for statement in statements.split("; "):
                wrapper.connection.cursor().execute(statement)


def _aborts_on_error(wrapper: Any) -> bool:
    """Return whether a statement that fails makes the transaction unusable; only PostgreSQL does that."""
    return bool(wrapper.vendor == "postgresql")
