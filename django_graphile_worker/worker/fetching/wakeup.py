"""A wake-up for a thread that waits for a socket."""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
from collections.abc import Callable
from functools import cached_property
from typing import Any


class Wakeup:
    """A wake-up that one thread sends and another awaits, which may watch a connection at the same time."""

    def __init__(self) -> None:
        self._watched: int | None = None
        self._is_waiting = False

    # Made when first needed: a worker that never waits leaves nothing open.

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
        """End a wait also when this connection's socket has input; None for no connection."""
        if self._watched is not None:
            # Closing the connection has removed its socket from the operating system's half of the selector already.
            with contextlib.suppress(KeyError, ValueError, OSError):
                self._selector.unregister(self._watched)
        self._watched = None if connection is None else connection.pgconn.socket
        if self._watched is not None:
            self._selector.register(self._watched, selectors.EVENT_READ)

    def wait(self, seconds: float, *, unless: Callable[[], bool]) -> bool:
        """Wait for ``wake()`` or the socket, unless the condition holds.

        Return True if ``wake()`` ended the wait or the condition holds.
        """
        selector = self._selector
        # Set the flag before checking the condition; the caller of wake() makes the condition true before wake() checks
        # the flag. Whichever runs second sees the other, so no wake-up is lost.
        self._is_waiting = True
        try:
            if unless():
                return True
            events = selector.select(None if math.isinf(seconds) else seconds)
            return any(key.fileobj is self._ends[0] for key, _ in events) and self._drain()
        finally:
            self._is_waiting = False

    def wake(self) -> None:
        """End the wait that is under way."""
        if self._is_waiting:
            # A full socket already holds enough wake-ups, and a closed socket has no wait to end.
            with contextlib.suppress(OSError):
                self._ends[1].send(b"!")

    def close(self) -> None:
        if "_selector" in vars(self):
            self._selector.close()
            for end in self._ends:
                end.close()

    def _drain(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            while self._ends[0].recv(4096):
                pass
        return True
