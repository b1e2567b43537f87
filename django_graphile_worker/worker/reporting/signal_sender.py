"""Sends the worker's signals from a thread of its own.

Receivers are the user's code. The parts that keep the lease alive and release
jobs must never wait for it, so they only drop a note here.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any

from django.dispatch import Signal

from django_graphile_worker.worker.connections import lifecycle
from django_graphile_worker.worker.service import Service


class SignalSender(Service):
    """Notes in, signals out, in order."""

    name = "announcer"

    def __init__(self, sender: type[Any], *, look: Callable[[], float] = lambda: inf) -> None:
        super().__init__()
        self._sender = sender
        # What is to be looked at before the notes are read; gives the seconds until the next look.
        self._look = look
        self._notes: deque[tuple[Signal, dict[str, Any]]] = deque()

    def announce(self, signal: Signal, **arguments: Any) -> None:
        """Send a signal soon; nothing is kept when nobody listens."""
        if signal.receivers:
            self._notes.append((signal, arguments))
            self.wake()

    def step(self) -> float:
        next_look = self._look()
        if self._notes:
            self._send()
        return next_look

    def close(self) -> None:
        try:
            self.step()
        finally:
            lifecycle.thread_finished()

    def _send(self) -> None:
        """Receivers may use the database: what broke or grew old since the last of them is not for the next."""
        if threading.current_thread() is self._thread:
            # Those of another, who steps by hand, are its own business.
            lifecycle.watch_thread()
            lifecycle.begin()
        try:
            while self._notes:
                signal, arguments = self._notes.popleft()
                signal.send_robust(self._sender, **arguments)
        finally:
            lifecycle.end()
