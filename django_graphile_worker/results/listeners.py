"""The listeners of this process: one for each database."""

from __future__ import annotations

import os
import threading

from django_graphile_worker.results.listener import ResultListener
from django_graphile_worker.routing import Place
from django_graphile_worker.worker.database.connection import Database

_listeners: dict[str, ResultListener] = {}
_making = threading.Lock()
# The listeners of the process that forked this one. They are kept, because what they hold belongs to that process.
_of_parents: list[ResultListener] = []


def listener_of(place: Place) -> ResultListener:
    """Return the listener of this process for the database of a place."""
    with _making:
        listener = _listeners.get(place.using)
        if listener is None:
            listener = _listeners[place.using] = ResultListener(Database(place.using, place.settings, part="results"))
        return listener


def close_listeners() -> None:
    """End all waits of this process, and close their connections; needed before a test database is dropped."""
    with _making:
        listeners = list(_listeners.values())
        _listeners.clear()
    for listener in listeners:
        listener.close()


def _start_anew() -> None:
    """Forget the listeners in a forked process, which has neither their threads nor connections of its own."""
    global _making
    _making = threading.Lock()
    _of_parents.extend(_listeners.values())
    _listeners.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
