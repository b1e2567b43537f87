"""Django's connections around a job: fresh before it, clean after it.

A thread that runs jobs knows which connections were really opened on it, from
Django's own signal, so a job that never touches a database costs nothing here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.core.cache import caches
from django.db import connections
from django.db.backends.signals import connection_created

if TYPE_CHECKING:
    from django_graphile_worker.worker.connections.watched import Leftover, WatchedConnection

logger = logging.getLogger("django_graphile_worker.worker")


class _Thread(threading.local):
    """What one thread has open."""

    def __init__(self) -> None:
        # None as long as it runs no jobs.
        self.watched: list[WatchedConnection] | None = None


_thread = _Thread()
_NOTHING: Sequence[Leftover] = ()


def start() -> None:
    """Watch connections from now on. Called late, so that a site's own receivers come first."""
    connection_created.disconnect(dispatch_uid=__name__)
    connection_created.connect(_opened, dispatch_uid=__name__, weak=False)


def begin() -> None:
    """Before a job: what is broken or too old is closed, so that the first query works."""
    connections_here = _thread.watched
    if connections_here is None:
        connections_here = _adopt_thread()
    if connections_here:
        for watched in connections_here:
            try:
                watched.begin()
            except Exception as error:
                _give_up(watched, error)


def end() -> Sequence[Leftover]:
    """After a job: what it left behind. Connections it dirtied are closed."""
    connections_here = _thread.watched
    if not connections_here:
        return _NOTHING
    return [leftover for watched in connections_here if (leftover := _end(watched))]


def _end(watched: WatchedConnection) -> Leftover | None:
    try:
        return watched.end()
    except Exception as error:
        _give_up(watched, error)
        return None


def _give_up(watched: WatchedConnection, error: Exception) -> None:
    """A connection that cannot even be examined is no loss, and no fault of the job."""
    logger.warning("A connection to %r is closed: it could not be checked.", watched.wrapper.alias, exc_info=error)
    watched.discard()


def thread_finished() -> None:
    """Close what this thread has open, except what lies inside somebody else's transaction."""
    connections_here, _thread.watched = _thread.watched, None
    for watched in connections_here or ():
        watched.release()


def _adopt_thread() -> list[WatchedConnection]:
    share_caches()
    return watch_thread()


def watch_thread() -> list[WatchedConnection]:
    """Watch the connections of this thread, whether it runs jobs or other code of the site."""
    if _thread.watched is None:
        _thread.watched = [_watched(wrapper) for wrapper in connections.all(initialized_only=True)]
    return _thread.watched


def _watched(wrapper: Any) -> WatchedConnection:
    # Here, as the first job may be one that needs no database.
    from django_graphile_worker.worker.connections.watched import WatchedConnection

    return WatchedConnection(wrapper)


def share_caches() -> None:
    """Make this thread's cache backends before its first job: one made inside a job's context would end with it."""
    for alias in caches:
        try:
            caches[alias]
        except Exception:  # a job that needs it will say what is wrong
            logger.debug("The cache %r cannot be made.", alias, exc_info=True)


def _opened(*, connection: Any, **kwargs: Any) -> None:
    connections_here = _thread.watched
    if connections_here is None:
        return
    for watched in connections_here:
        if watched.wrapper is connection:
            watched.opened()
            return
    # Copies that a task makes for itself are its own business.
    if connections[connection.alias] is connection:
        watched = _watched(connection)
        connections_here.append(watched)
        watched.opened()
