"""Wakes a thread that waits for a socket."""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
from collections.abc import Callable
from functools import cached_property
from typing import Any


class Wakeup:
    """Rung by one thread, waited for by another, which may watch a connection at the same time."""

    def __init__(self) -> None:
        self._watched: int | None = None
        self._is_waiting = False

    # Made when first needed: a worker that never got so far leaves nothing open.

    @cached_property
    def _selector(self) -> selectors.BaseSelector:
        selector = selectors.DefaultSelector()
        selector.register(self._ends[0], selectors.EVENT_READ)
        return selector

    @cached_property
    def _ends(self) -> tuple[socket.socket, socket.socket]:
        ends = socket.socketpair()
        for end in ends:
            end.setblocking(False)
        return ends

    def watch(self, connection: Any) -> None:
        """From now on this connection's socket ends a wait too; None for no more."""
        if self._watched is not None:
            # Whoever closed the connection has taken it from the selector's other half already.
            with contextlib.suppress(KeyError, ValueError, OSError):
                self._selector.unregister(self._watched)
        self._watched = None if connection is None else connection.pgconn.socket
        if self._watched is not None:
            self._selector.register(self._watched, selectors.EVENT_READ)

    def wait(self, seconds: float, *, unless: Callable[[], bool]) -> bool:
        """Wait for the bell or the socket; was it the bell?"""
        selector = self._selector
        # Said before it is asked, as the one who rings asks only after it has said: one of the two sees the other.
        self._is_waiting = True
        try:
            if unless():
                return True
            events = selector.select(None if math.isinf(seconds) else seconds)
            return any(key.fileobj is self._ends[0] for key, _ in events) and self._silence()
        finally:
            self._is_waiting = False

    def ring(self) -> None:
        if self._is_waiting:
            # Full or closed, it has been rung often enough.
            with contextlib.suppress(OSError):
                self._ends[1].send(b"!")

    def close(self) -> None:
        if "_selector" in vars(self):
            self._selector.close()
            for end in self._ends:
                end.close()

    def _silence(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            while self._ends[0].recv(4096):
                pass
        return True
