"""The signal handlers of a worker process."""

from __future__ import annotations

import contextlib
import faulthandler
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.stop_request import StopState

# SIGQUIT counts twice: it stops the worker at once.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# Writes the stacks of all threads to standard error, and changes nothing.
DUMP_SIGNAL = signal.SIGUSR1


class _PreviousHandlers:
    """The signal handlers from before the worker installed its own."""

    def __init__(self) -> None:
        self.handlers: dict[signal.Signals, Any] = {}
        self.wakeup_descriptor = -1

    def restore(self) -> None:
        for number, handler in self.handlers.items():
            # None stands for a handler that Python did not install and cannot restore.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self.wakeup_descriptor)


# An entry for each `handled_signals` that is active, the outermost first.
_stack: list[_PreviousHandlers] = []


@contextmanager
def handled_signals(request: StopState) -> Iterator[None]:
    """Turn stop signals into stop requests, and SIGUSR1 into a dump of stacks; on other threads, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = _PreviousHandlers()
    before.wakeup_descriptor = request.be_woken_by_signals()
    _stack.append(before)
    for number in STOP_SIGNALS:
        before.handlers[number] = signal.signal(number, request.handle_signal)
    fork_guard.watch()
    fork_guard.call_in_child("signals", _restore_in_child)
    try:
        with dumped_stacks():
            yield
    finally:
        _stack.remove(before)
        before.restore()
        if not _stack:
            fork_guard.call_in_child("signals", None)


@contextmanager
def dumped_stacks() -> Iterator[None]:
    """Have SIGUSR1 write the stacks of all threads, unless the project handles the signal itself."""
    if signal.getsignal(DUMP_SIGNAL) is not signal.SIG_DFL or not _register_dump():
        yield
        return
    try:
        yield
    finally:
        faulthandler.unregister(DUMP_SIGNAL)


def _register_dump() -> bool:
    """Register a handler in C, which works even while a job holds the interpreter's lock; return True on success."""
    for out in (sys.stderr, sys.__stderr__):
        with contextlib.suppress(AttributeError, OSError, ValueError, RuntimeError):
            faulthandler.register(DUMP_SIGNAL, file=out, all_threads=True)  # type: ignore[arg-type]
            return True
    return False


def _restore_in_child() -> None:
    """Restore the handlers in a forked process, which is no worker: its signals must not wake its parent."""
    if _stack:
        faulthandler.unregister(DUMP_SIGNAL)
        _stack[0].restore()
        _stack.clear()
