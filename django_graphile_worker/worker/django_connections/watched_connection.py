"""One Django connection of one thread: usable before a job, clean after it."""

from __future__ import annotations

import select
from time import monotonic
from typing import Any

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.worker.django_connections.session_changes import SessionChanges
from django_graphile_worker.worker.django_connections.transaction_status import (
    ACTIVE,
    IDLE,
    IN_FAILED_TRANSACTION,
    IN_TRANSACTION,
    UNKNOWN,
    transaction_status,
)

_LEFT_OPEN = {
    ACTIVE: "a statement (COPY?) unfinished",
    IN_TRANSACTION: "a transaction open: it was rolled back",
    IN_FAILED_TRANSACTION: "a failed transaction open: it was rolled back",
}


class Leftover(Frozen):
    """What a job left on a connection, which was closed because of it."""

    text: str
    # Whether work that was not committed was rolled back. Otherwise only the session changed, and no work is lost.
    is_work_lost: bool


class WatchedConnection:
    """A connection that is checked before and after each job, and closed if a job left it changed.

    It reads and sets attributes of Django's ``DatabaseWrapper`` that are not documented; tests watch them.
    """

    def __init__(self, wrapper: Any) -> None:
        self.wrapper = wrapper
        # How many atomic blocks and savepoints a test had opened when the job began; None if no block was open.
        self._depth: tuple[int, int] | None = None
        self._session = SessionChanges(wrapper)
        self._poller: tuple[Any, Any] | None = None
        if wrapper.vendor == "postgresql":
            wrapper.execute_wrappers.insert(0, self._session.note_statement)

    def opened(self) -> None:
        """Replace a connection that is already broken: it may have broken while it was in a pool."""
        wrapper = self.wrapper
        if getattr(wrapper, "pool", None) and self._has_input() and not wrapper.is_usable():
            wrapper.close()
            wrapper.connect()

    def begin(self) -> None:
        """Close the connection before a job if it is broken or expired."""
        wrapper = self.wrapper
        # A transaction that was open before the job belongs to a test.
        if wrapper.connection is not None and wrapper.in_atomic_block:
            self._depth = len(wrapper.atomic_blocks), len(wrapper.savepoint_ids)
            return
        self._depth = None
        # As before a request: with DEBUG each query is logged. A test that counts queries has set force_debug_cursor.
        if wrapper.queries_log and not wrapper.force_debug_cursor:
            wrapper.queries_log.clear()
        if wrapper.connection is None:
            return
        if self._has_input():
            wrapper.errors_occurred = True
        self._close_if_unusable_or_obsolete()

    def end(self) -> Leftover | None:
        """Return what the job left behind, None for nothing. The connection is closed if there is a leftover."""
        if self._depth is not None:
            return self._end_inside_transaction(*self._depth)
        wrapper = self.wrapper
        if wrapper.connection is None and not wrapper.in_atomic_block:
            self._session.forget()
            return None
        leftover = self._open_transaction()
        if leftover:
            self.discard()
        elif self._session.is_suspect() and (changes := self._session.find(self.discard)):
            leftover = self._leftover(changes)
        self._session.forget()
        self._close_if_unusable_or_obsolete()
        return leftover

    def _leftover(self, text: str, *, is_work_lost: bool = False) -> Leftover:
        return Leftover(text=f"database {self.wrapper.alias!r}: {text}", is_work_lost=is_work_lost)

    def release(self) -> None:
        """Stop watching, and close the connection: the thread runs no more jobs."""
        wrapper = self.wrapper
        if self._session.note_statement in wrapper.execute_wrappers:
            wrapper.execute_wrappers.remove(self._session.note_statement)
        if not wrapper.in_atomic_block:
            wrapper.close()

    def _close_if_unusable_or_obsolete(self) -> None:
        """Call Django's method of that name, but only if it would do more than reset the health check."""
        wrapper = self.wrapper
        if wrapper.errors_occurred or (wrapper.close_at is not None and monotonic() >= wrapper.close_at):
            wrapper.close_if_unusable_or_obsolete()
        else:
            wrapper.health_check_done = False

    def _end_inside_transaction(self, blocks: int, savepoints: int) -> Leftover | None:
        """Roll back to the savepoints that were open before the job."""
        self._session.forget()
        wrapper = self.wrapper
        if not wrapper.in_atomic_block or len(wrapper.atomic_blocks) <= blocks:
            return None
        while len(wrapper.savepoint_ids) > savepoints:
            savepoint = wrapper.savepoint_ids.pop()
            wrapper.needs_rollback = False
            if savepoint is not None:
                wrapper.savepoint_rollback(savepoint)
        del wrapper.atomic_blocks[blocks:]
        return self._leftover("an atomic block open: it was rolled back", is_work_lost=True)

    def _open_transaction(self) -> Leftover | None:
        wrapper = self.wrapper
        if wrapper.in_atomic_block:
            return self._leftover("an atomic block open: it was rolled back", is_work_lost=True)
        status = transaction_status(wrapper)
        if wrapper.autocommit != wrapper.settings_dict["AUTOCOMMIT"]:
            if status == IDLE:
                return self._leftover("autocommit switched off")
            return self._leftover("autocommit switched off: what was not committed is lost", is_work_lost=True)
        if status == UNKNOWN:
            wrapper.errors_occurred = True
        text = _LEFT_OPEN.get(status)
        return self._leftover(text, is_work_lost=True) if text else None

    def discard(self) -> None:
        """Close the connection itself: a pool would pass the changed session on to its next user."""
        wrapper = self.wrapper
        wrapper.in_atomic_block = False
        wrapper.closed_in_transaction = False
        wrapper.needs_rollback = False
        wrapper.savepoint_ids = []
        wrapper.atomic_blocks = []
        try:
            if getattr(wrapper.connection, "pgconn", None) is not None:
                wrapper.connection.close()
            wrapper.close()
        except Exception:
            wrapper.connection = None

    def _has_input(self) -> bool:
        """Return True if the socket has input: on an idle connection, nearly always because the server closed it."""
        raw = self.wrapper.connection
        if getattr(raw, "pgconn", None) is None:
            return False
        if self._poller is None or self._poller[0] is not raw:
            try:
                poller = select.poll()
                poller.register(raw.pgconn.socket, select.POLLIN)
            except Exception:
                return True
            self._poller = (raw, poller)
        return bool(self._poller[1].poll(0))
