"""The signal handlers of a worker process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.process import stack_dump
from django_graphile_worker.worker.stop_request import StopState

# SIGQUIT counts twice: it stops the worker at once.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# Writes the stacks of all threads and coroutines to standard error, and changes nothing.
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
def handled_signals(
    request: StopState, *, afterwards: Mapping[signal.Signals, signal.Handlers] | None = None
) -> Iterator[None]:
    """Turn stop signals into stop requests, and SIGUSR1 into a dump of stacks; on other threads, do nothing.

    After the block, signals have the handlers of ``afterwards``, or else those of before.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = _PreviousHandlers()
    before.wakeup_descriptor = request.be_woken_by_signals()
    _stack.append(before)
    for number in STOP_SIGNALS:
        before.handlers[number] = signal.signal(number, request.handle_signal)
    # A handler of the project stays.
    if signal.getsignal(DUMP_SIGNAL) is signal.SIG_DFL and stack_dump.register(DUMP_SIGNAL):
        before.handlers[DUMP_SIGNAL] = signal.SIG_DFL
    fork_guard.watch()
    fork_guard.call_in_child("signals", _restore_in_child)
    try:
        yield
    finally:
        _stack.remove(before)
        before.handlers |= afterwards or {}
        before.restore()
        if not _stack:
            fork_guard.call_in_child("signals", None)


def _restore_in_child() -> None:
    """Restore the handlers in a forked process, which is no worker: its signals must not wake its parent."""
    if _stack:
        _stack[0].restore()
        _stack.clear()
