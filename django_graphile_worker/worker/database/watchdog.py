"""A deadline for every statement that the worker itself runs.

A server may hang on a lock, and a network may drop a connection without an
error; keepalives notice neither through a proxy. So another thread watches the
clock: past its deadline a statement is first cancelled, which frees the server,
and then, if that did not help, its socket is shut down, which frees the thread.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("django_graphile_worker.worker")

TICK = 0.5
# How many ticks the thread continues after the last statement: waking it costs the next statement time.
TICKS_AFTER = 20
CANCEL_TIMEOUT = 2.0


class Watched:
    """A statement that runs under a deadline."""

    __slots__ = ("connection", "cuts_at_once", "deadline", "is_late", "lock", "was_cut")

    def __init__(self, deadline: float, connection: Any, *, cuts_at_once: bool) -> None:
        self.deadline = deadline
        self.connection = connection
        # Whether to skip the request to cancel: it takes seconds if the server does not answer.
        self.cuts_at_once = cuts_at_once
        self.is_late = self.was_cut = False
        # Held while the statement is cancelled or cut, so that this concerns no later statement of its connection.
        self.lock = threading.Lock()


class Watchdog:
    """One thread that watches all statements of the worker in this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watched: dict[int, Watched] = {}
        self._tokens = itertools.count()
        self._was_used = False
        self._idle_ticks = 0
        self._something_to_watch = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @contextmanager
    def watch(self, connection: Any, seconds: float, *, cuts_at_once: bool = False) -> Iterator[None]:
        """Run the block under a deadline, in this many seconds."""
        token = self.begin(connection, seconds, cuts_at_once=cuts_at_once)
        try:
            yield
        finally:
            self.end(token)

    def begin(self, connection: Any, seconds: float, *, cuts_at_once: bool = False) -> int:
        """Watch the connection; return a token with which ``end()`` ends the watch."""
        if self._thread is None:
            self._start_thread()
        token = next(self._tokens)
        self._watched[token] = Watched(self._clock() + seconds, connection, cuts_at_once=cuts_at_once)
        self._was_used = True
        if not self._something_to_watch.is_set():
            self._something_to_watch.set()
        return token

    def end(self, token: int) -> None:
        """End the watch. Close the connection if it was cut, because the statement may have ended before that."""
        watched = self._watched.pop(token, None)
        if watched is not None and watched.is_late:
            with watched.lock:
                if watched.was_cut:
                    watched.connection.close()

    def check_deadlines(self) -> None:
        """Cancel each statement that is past its deadline; cut its connection if that did not help."""
        now = self._clock()
        for token, watched in list(self._watched.items()):
            if now >= watched.deadline:
                self._end_statement(token, watched)

    def _end_statement(self, token: int, watched: Watched) -> None:
        with watched.lock:
            # Set before the statement is looked up: the thread that ends the watch removes it first, and then reads it.
            was_late, watched.is_late = watched.is_late, True
            if token not in self._watched:
                return
            if was_late or watched.cuts_at_once:
                watched.was_cut = True
                cut(watched.connection)
            else:
                with contextlib.suppress(Exception):
                    watched.connection.cancel_safe(timeout=CANCEL_TIMEOUT)

    def forget_thread(self) -> None:
        """Start anew in a forked process: it has no other thread, and the connections belong to its parent."""
        self._watched.clear()
        self._thread = None
        self._something_to_watch = threading.Event()
        self._lock = threading.Lock()

    def _start_thread(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._main, name="graphile-worker-watchdog", daemon=True)
                thread.start()
                self._thread = thread

    def _main(self) -> None:
        while True:
            try:
                self._something_to_watch.wait()
                threading.Event().wait(TICK)
                self._tick()
            except Exception:
                # Without this thread no statement would have a deadline any more.
                logger.exception("The watchdog failed, and continues.")

    def _tick(self) -> None:
        seen, self._was_used = self._was_used, False
        self._idle_ticks = 0 if self._watched or seen else self._idle_ticks + 1
        if self._idle_ticks > TICKS_AFTER:
            self._something_to_watch.clear()
            # A statement may have begun in between, before the flag was cleared.
            if self._watched:
                self._something_to_watch.set()
        self.check_deadlines()


def cut(connection: Any) -> None:
    """Shut down the socket of a connection: the thread that reads from it gets an error."""
    with contextlib.suppress(Exception):
        duplicate = socket.socket(fileno=os.dup(connection.pgconn.socket))
        try:
            duplicate.shutdown(socket.SHUT_RDWR)
        finally:
            duplicate.close()


watchdog = Watchdog()
# Instead of a check before every statement whether the thread is alive, which would cost time.
os.register_at_fork(after_in_child=watchdog.forget_thread)
