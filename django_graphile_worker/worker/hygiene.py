"""Django's connections around a job: fresh before it, clean after it.

A thread that runs jobs knows which connections were really opened on it, from
Django's own signal, so a job that never touches a database costs nothing here.
"""

from __future__ import annotations

import threading
from typing import Any

from django.db import connections
from django.db.backends.signals import connection_created

from django_graphile_worker.worker.session import WatchedConnection


class _Thread(threading.local):
    """What one thread has open."""

    def __init__(self) -> None:
        self.runs_jobs = False
        self.watched: list[WatchedConnection] = []


_thread = _Thread()


def start() -> None:
    """Watch connections from now on. Called late, so that a site's own receivers come first."""
    connection_created.disconnect(dispatch_uid=__name__)
    connection_created.connect(_opened, dispatch_uid=__name__, weak=False)


def begin() -> None:
    """Before a job: what is broken or too old is closed, so that the first query works."""
    if not _thread.runs_jobs:
        _adopt_thread()
    for watched in _thread.watched:
        watched.begin()


def end() -> list[str]:
    """After a job: what it left behind, in words. Connections it dirtied are closed."""
    if not _thread.watched:
        return []
    return [complaint for watched in _thread.watched if (complaint := watched.end())]


def thread_finished() -> None:
    """Close what this thread has open, except what lies inside somebody else's transaction."""
    for watched in _thread.watched:
        watched.release()
    _thread.watched = []
    _thread.runs_jobs = False


def _adopt_thread() -> None:
    _thread.runs_jobs = True
    _thread.watched = [WatchedConnection(wrapper) for wrapper in connections.all(initialized_only=True)]


def _opened(*, connection: Any, **kwargs: Any) -> None:
    if not _thread.runs_jobs:
        return
    for watched in _thread.watched:
        if watched.wrapper is connection:
            watched.opened()
            return
    # Copies that a task makes for itself are its own business.
    if connections[connection.alias] is connection:
        watched = WatchedConnection(connection)
        _thread.watched.append(watched)
        watched.opened()
