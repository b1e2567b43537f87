"""Sends the worker's signals from a separate thread.

Receivers are code of the site. The parts that keep the lease and release jobs must never wait for that code, so they
only queue their signals here.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.dispatch import Signal

from django_graphile_worker.worker import django_connections
from django_graphile_worker.worker.service import Service

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker


class SignalSender(Service):
    """The service that sends queued signals, in order."""

    name = "signal-sender"

    def __init__(self, worker: DatabaseWorker, sender: type[Any]) -> None:
        super().__init__()
        self._worker = worker
        self._sender = sender
        self._queued: deque[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = deque()

    def send(self, signal: Signal, **arguments: Any) -> None:
        """Queue a signal; drop a signal without receivers."""
        if signal.receivers:
            self.call(signal.send_robust, self._sender, **arguments)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Queue a call of code of the site."""
        self._queued.append((function, args, kwargs))
        self.wake()

    @property
    def has_queued(self) -> bool:
        """Whether a signal or a call waits for the next step."""
        return bool(self._queued)

    def step(self) -> float:
        # First, as it may queue a signal.
        delay = self._worker.events.check_outage()
        if self._queued:
            self._send_queued()
        return delay

    def close(self) -> None:
        try:
            self.step()
        finally:
            django_connections.thread_finished()

    def _send_queued(self) -> None:
        """Send all queued signals.

        Receivers may use Django's connections: a connection that broke or expired since the last signal is closed.
        """
        if threading.current_thread() is self._thread:
            # Only on the service's own thread: another thread that calls step() manages its own connections.
            django_connections.watch_thread()
            django_connections.begin()
        try:
            while self._queued:
                function, args, kwargs = self._queued.popleft()
                function(*args, **kwargs)
        finally:
            django_connections.end()
