"""What the signals of a worker process do."""

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
# Writes where every thread is to standard error, and changes nothing.
DUMP_SIGNAL = signal.SIGUSR1


class _Before:
    """What signals did before the worker handled them."""

    def __init__(self) -> None:
        self.handlers: dict[signal.Signals, Any] = {}
        self.wakeup_descriptor = -1

    def restore(self) -> None:
        for number, handler in self.handlers.items():
            # None: not made by Python, which cannot bring it back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self.wakeup_descriptor)


# One for each `handled_signals` that is under way, the outermost first.
_stack: list[_Before] = []


@contextmanager
def handled_signals(request: StopState) -> Iterator[None]:
    """Turn the stop signals into stop requests, and SIGUSR1 into a dump of stacks; only the main thread may."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = _Before()
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
    """Have SIGUSR1 write the stacks of all threads, unless the site has a use of its own for it."""
    if signal.getsignal(DUMP_SIGNAL) is not signal.SIG_DFL or not _register_dump():
        yield
        return
    try:
        yield
    finally:
        faulthandler.unregister(DUMP_SIGNAL)


def _register_dump() -> bool:
    """In C, by the signal handler itself: it works also while a job keeps the interpreter's lock."""
    for out in (sys.stderr, sys.__stderr__):
        with contextlib.suppress(AttributeError, OSError, ValueError, RuntimeError):
            faulthandler.register(DUMP_SIGNAL, file=out, all_threads=True)  # type: ignore[arg-type]
            return True
    return False


def _restore_in_child() -> None:
    """A forked process is no worker: signals do there what they did before, and wake nobody in its parent."""
    if _stack:
        faulthandler.unregister(DUMP_SIGNAL)
        _stack[0].restore()
        _stack.clear()
