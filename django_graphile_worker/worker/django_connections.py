"""Django's connections around a job: usable before it, clean after it.

The executor calls ``begin()`` and ``end()`` around each job. Django's signal ``connection_created`` reports each
connection that is opened on a thread that runs jobs, so a job that never uses a database costs nothing here.

The next job never gets an open transaction, autocommit switched off, or another role. Django and libpq know the first
two without a query. The role is not known: libpq reports ``session_authorization`` and ``is_superuser``, but a change
from one ordinary role to another changes neither, on PostgreSQL 15 to 18. So the server is asked, but only after a job
that used a connection which stays open: it takes about 0.02 ms on the same machine. Texts of statements are not
read, and other changes of the session, such as ``SET``, stay until its connection is closed.
"""

from __future__ import annotations

import logging
import select
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from django.core.cache import caches
from django.db import connections
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

from django_graphile_worker.logs.errors import log_exception
from django_graphile_worker.sql.session import SessionRoles, session_roles

logger = logging.getLogger("django_graphile_worker.worker")

_LEFT_OPEN: dict[int, str] = {
    TransactionStatus.ACTIVE: "a statement (COPY?) unfinished",
    TransactionStatus.INTRANS: "a transaction open: it was rolled back",
    TransactionStatus.INERROR: "a failed transaction open: it was rolled back",
}


class _Thread(threading.local):
    """The open connections of one thread."""

    def __init__(self) -> None:
        # None until the thread runs its first job.
        self.watched: list[WatchedConnection] | None = None


this_thread = _Thread()
# What ``this_thread.watched`` is equal to in a thread that runs jobs and has opened no connection.
NO_CONNECTIONS: list[WatchedConnection] = []
_NOTHING: Sequence[Leftover] = ()
# By the id of the thread: the same lists, for the thread that stops a run.
_watched_of: dict[int, list[WatchedConnection]] = {}


def start() -> None:
    """Watch connections from now on. Called late, so that receivers of the site run first."""
    connection_created.disconnect(dispatch_uid=__name__)
    connection_created.connect(_opened, dispatch_uid=__name__, weak=False)


def begin() -> None:
    """Close broken and expired connections before a job, so that its first query works."""
    connections_here = this_thread.watched
    if connections_here is None:
        create_caches()
        connections_here = watch_thread()
    if connections_here:
        for watched in connections_here:
            try:
                watched.begin()
            except Exception as error:
                _discard(watched, error)


def end() -> Sequence[Leftover]:
    """Return what a job left on its connections. Connections with leftovers are closed."""
    connections_here = this_thread.watched
    if not connections_here:
        return _NOTHING
    return [leftover for watched in connections_here if (leftover := _end(watched))]


def _end(watched: WatchedConnection) -> Leftover | None:
    try:
        return watched.end()
    except Exception as error:
        _discard(watched, error)
        return None


def _discard(watched: WatchedConnection, error: Exception) -> None:
    """Close a connection that cannot be checked. The job is not responsible for that."""
    line = "A connection to %r is closed: it could not be checked."
    log_exception(logger, logging.WARNING, line, watched.wrapper.alias, error=error)
    watched.discard()


def thread_finished() -> None:
    """Close the connections of this thread, unless they are in a transaction that began before the jobs."""
    connections_here, this_thread.watched = this_thread.watched, None
    _watched_of.pop(threading.get_ident(), None)
    for watched in connections_here or ():
        watched.release()


def connections_of(thread_id: int) -> Sequence[WatchedConnection]:
    """Return the connections of another thread that runs jobs."""
    return tuple(_watched_of.get(thread_id, ()))


def watch_thread() -> list[WatchedConnection]:
    """Watch the connections of this thread, whether it runs jobs or other code of the site."""
    if this_thread.watched is None:
        this_thread.watched = [WatchedConnection(wrapper) for wrapper in connections.all(initialized_only=True)]
        _watched_of[threading.get_ident()] = this_thread.watched
    return this_thread.watched


def create_caches() -> None:
    """Create the cache backends of this thread before its first job.

    Django keeps them in the context: a backend that is created inside a job would end with the context of the job.
    """
    for alias in caches:
        try:
            caches[alias]
        except Exception:  # a job that uses this cache reports the error
            logger.debug("The cache %r cannot be created.", alias, exc_info=True)


def _opened(*, connection: Any, **kwargs: Any) -> None:
    connections_here = this_thread.watched
    if connections_here is None:
        return
    for watched in connections_here:
        if watched.wrapper is connection:
            watched.opened()
            return
    # A copy of a connection that a task makes is not watched: the task itself has to close it.
    if connections[connection.alias] is connection:
        watched = WatchedConnection(connection)
        connections_here.append(watched)
        watched.opened()


def transaction_status(wrapper: Any) -> int:
    """Return the ``TransactionStatus`` of a Django connection: IDLE if it is not open, or uses another driver.

    libpq keeps the status, so reading it sends nothing to the server.
    """
    pgconn = getattr(wrapper.connection, "pgconn", None)
    return TransactionStatus.IDLE if pgconn is None else int(pgconn.transaction_status)


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a job left on a connection, which was closed because of it."""

    text: str
    # Whether work that was not committed was rolled back. Otherwise only the session changed, and no work is lost.
    is_work_lost: bool = False


class WatchedConnection:
    """A connection that is checked before and after each job, and closed if a job left it changed.

    It reads and sets attributes of Django's ``DatabaseWrapper`` that are not documented; tests watch them.
    """

    def __init__(self, wrapper: Any) -> None:
        self.wrapper = wrapper
        # How many atomic blocks and savepoints a test had opened when the job began; None if no block was open.
        self._depth: tuple[int, int] | None = None
        # Whether the job has executed a statement.
        self._is_used = False
        # The roles of the session when it was opened; None if they were not asked for.
        self._roles: SessionRoles | None = None
        if wrapper.vendor == "postgresql":
            wrapper.execute_wrappers.insert(0, self._note_use)

    def _note_use(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        """Execute a statement. Django calls it as an execute wrapper."""
        self._is_used = True
        return execute(sql, params, many, context)

    def opened(self) -> None:
        """Ask for the roles of the new session. Replace it if it is already broken: it may have broken in a pool."""
        wrapper = self.wrapper
        if getattr(wrapper, "pool", None) and self._has_input() and not wrapper.is_usable():
            wrapper.close()
            # Calls this method for the other session.
            wrapper.connect()
        else:
            self._roles = session_roles(self.wrapper.connection.pgconn) if self._stays_open() else None

    def begin(self) -> None:
        """Close the connection before a job if it is broken or expired."""
        wrapper = self.wrapper
        # A transaction that was open before the job belongs to a test.
        if wrapper.connection is not None and wrapper.in_atomic_block:
            self._depth = len(wrapper.atomic_blocks), len(wrapper.savepoint_ids)
            return
        self._depth = None
        self._is_used = False
        # As before a request: with DEBUG each query is logged. A test that counts queries has set force_debug_cursor.
        if wrapper.queries_log and not wrapper.force_debug_cursor:
            wrapper.queries_log.clear()
        if wrapper.connection is None:
            return
        if self._has_input():
            wrapper.errors_occurred = True
        self._close_if_unusable_or_obsolete()
        if self._roles is None and wrapper.connection is not None and self._stays_open():
            # It was opened before its thread ran jobs.
            self._roles = session_roles(self.wrapper.connection.pgconn)

    def end(self) -> Leftover | None:
        """Return what the job left behind, None for nothing. The connection is closed if there is a leftover."""
        wrapper = self.wrapper
        if self._depth is not None:
            return self._end_inside_transaction(*self._depth)
        if wrapper.connection is None and not wrapper.in_atomic_block:
            return None
        leftover = self._open_transaction() or self._changed_role()
        if leftover:
            self.discard()
        self._close_if_unusable_or_obsolete()
        return leftover

    def release(self) -> None:
        """Stop watching, and close the connection: the thread runs no more jobs."""
        wrapper = self.wrapper
        if self._note_use in wrapper.execute_wrappers:
            wrapper.execute_wrappers.remove(self._note_use)
        if not wrapper.in_atomic_block:
            wrapper.close()

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

    def _leftover(self, text: str, *, is_work_lost: bool = False) -> Leftover:
        return Leftover(f"database {self.wrapper.alias!r}: {text}", is_work_lost)

    def _end_inside_transaction(self, blocks: int, savepoints: int) -> Leftover | None:
        """Roll back to the savepoints that were open before the job."""
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
            if status == TransactionStatus.IDLE:
                return self._leftover("autocommit switched off")
            return self._leftover("autocommit switched off: what was not committed is lost", is_work_lost=True)
        if status == TransactionStatus.UNKNOWN:
            wrapper.errors_occurred = True
        text = _LEFT_OPEN.get(status)
        return self._leftover(text, is_work_lost=True) if text else None

    def _changed_role(self) -> Leftover | None:
        if not self._is_used or self._roles is None or not self._stays_open():
            return None
        if transaction_status(self.wrapper) == TransactionStatus.UNKNOWN:
            return None
        roles = session_roles(self.wrapper.connection.pgconn)
        if roles == self._roles:
            return None
        return self._leftover(f"its role changed from {self._roles} to {roles}")

    def _stays_open(self) -> bool:
        """Return whether a later job may get this session: from a pool, or from the wrapper itself."""
        wrapper = self.wrapper
        if getattr(wrapper.connection, "pgconn", None) is None:
            return False
        return bool(getattr(wrapper, "pool", None)) or wrapper.close_at is None or monotonic() < wrapper.close_at

    def _close_if_unusable_or_obsolete(self) -> None:
        """Call Django's method of that name, but only if it would do more than reset the health check."""
        wrapper = self.wrapper
        if wrapper.errors_occurred or (wrapper.close_at is not None and monotonic() >= wrapper.close_at):
            wrapper.close_if_unusable_or_obsolete()
        else:
            wrapper.health_check_done = False

    def _has_input(self) -> bool:
        """Return True if the socket has input: on an idle connection, nearly always because the server closed it."""
        raw = self.wrapper.connection
        if getattr(raw, "pgconn", None) is None:
            return False
        poller = select.poll()
        try:
            poller.register(raw.pgconn.socket, select.POLLIN)
        except Exception:
            return True
        return bool(poller.poll(0))
