"""Lets a connection that is inside the transaction of a test look to a job as it looks in a worker.

A worker runs jobs in autocommit mode: each statement commits, a statement that fails undoes nothing but itself,
``atomic()`` begins a transaction, and hooks of ``on_commit()`` are called when it ends. Inside the transaction of a
``TestCase`` nothing commits. So, while a job runs, each statement has a savepoint, and a transaction of the job
is a savepoint, too: to begin, commit and roll it back is to create, release and roll back that savepoint.

The attributes and methods of Django's ``DatabaseWrapper`` that are replaced here are not documented; tests watch them.
"""

from __future__ import annotations

from typing import Any

from psycopg.pq import TransactionStatus

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
