"""Django's connections around a job: usable before it, clean after it.

Django's signal ``connection_created`` reports each connection that is opened on a thread that runs jobs. So a job
that never uses a database costs nothing here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.core.cache import caches
from django.db import connections
from django.db.backends.signals import connection_created

from django_graphile_worker.logs.lines import log_exception

if TYPE_CHECKING:
    from django_graphile_worker.worker.django_connections.watched_connection import Leftover, WatchedConnection

logger = logging.getLogger("django_graphile_worker.worker")


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
        connections_here = _adopt_thread()
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


def _adopt_thread() -> list[WatchedConnection]:
    create_caches()
    return watch_thread()


def watch_thread() -> list[WatchedConnection]:
    """Watch the connections of this thread, whether it runs jobs or other code of the site."""
    if this_thread.watched is None:
        this_thread.watched = [_watched(wrapper) for wrapper in connections.all(initialized_only=True)]
        _watched_of[threading.get_ident()] = this_thread.watched
    return this_thread.watched


def _watched(wrapper: Any) -> WatchedConnection:
    # Late import: the first job may need no database.
    from django_graphile_worker.worker.django_connections.watched_connection import WatchedConnection

    return WatchedConnection(wrapper)


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
        watched = _watched(connection)
        connections_here.append(watched)
        watched.opened()
