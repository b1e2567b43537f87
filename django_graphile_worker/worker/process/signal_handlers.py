"""The signal handlers of a worker process: requests to stop, and a dump of all stacks.

The dump has the stacks of all threads and coroutines, to find out where a job hangs. The stacks are read with the lock
of the interpreter held. ``faulthandler`` reads them without the lock, and then a busy process can die: a thread may
free a frame while its stack is read.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import os
import signal
import sys
import threading
import traceback
from asyncio.base_events import BaseEventLoop
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import IO, Any

from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.control.position import awaiting_frames, frames_by_thread
from django_graphile_worker.worker.stop_request import WorkerStop

# SIGQUIT counts twice: it stops the worker at once.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# Writes the stacks of all threads and coroutines to standard error, and changes nothing.
DUMP_SIGNAL = signal.SIGUSR1

_RUN_FOREVER = BaseEventLoop.run_forever.__code__


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


@contextlib.contextmanager
def handled_signals(
    request: WorkerStop, *, afterwards: Mapping[signal.Signals, signal.Handlers] | None = None
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
    if signal.getsignal(DUMP_SIGNAL) is signal.SIG_DFL and _register_dump(DUMP_SIGNAL):
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


class StackDump:
    """A signal handler that writes the stacks. A signal that comes while they are written does nothing more."""

    def __init__(self, out: IO[Any]) -> None:
        # The file and not its descriptor: when the file is closed, another file may get the number.
        self._out = out
        self._is_writing = _thread.allocate_lock()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self._is_writing.acquire(blocking=False):
            return
        try:
            # On a thread of its own: the main thread may hold a lock that the writing needs. `_thread`, because
            # `threading` takes such a lock to start a thread.
            _thread.start_new_thread(self._write_stacks, ())
        except RuntimeError as error:
            # No memory for another thread. That must not end the worker.
            self._write(f"The stacks cannot be written: {error}.\n")
            self._is_writing.release()

    def _write_stacks(self) -> None:
        try:
            self._write("\n".join(_stacks()))
        finally:
            self._is_writing.release()

    def _write(self, text: str) -> None:
        left = memoryview(text.encode(errors="backslashreplace"))
        with contextlib.suppress(OSError, ValueError):
            while left:
                left = left[os.write(self._out.fileno(), left) :]


def _register_dump(number: signal.Signals) -> bool:
    """Have a signal write the stacks to standard error; return False if there is no such stream."""
    for out in (sys.stderr, sys.__stderr__):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            if out is not None and out.fileno() >= 0:
                signal.signal(number, StackDump(out))
                return True
    return False


def is_free(number: signal.Signals) -> bool:
    """Return whether the signal has no handler, or the handler of this module."""
    handler = signal.getsignal(number)
    return handler is signal.SIG_DFL or isinstance(handler, StackDump)


def _stacks() -> Iterator[str]:
    """Yield the stacks of the other threads, and of the coroutines that wait."""
    yield f"Stacks of process {os.getpid()}:"
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = frames_by_thread()
    frames.pop(threading.get_ident(), None)
    # Before the first stack is formatted, which reads files and lets the threads run on: the frame of a generator that
    # has yielded meanwhile has no caller.
    stacks = {ident: list(traceback.walk_stack(frame))[::-1] for ident, frame in frames.items()}
    for ident, stack in stacks.items():
        yield f"Thread {names.get(ident, ident)} (most recent call last):"
        yield "".join(traceback.StackSummary.extract(iter(stack)).format())
    for loop in filter(None, map(_running_loop, frames.values())):
        yield from _stacks_of_coroutines(loop)


def _running_loop(frame: FrameType | None) -> asyncio.AbstractEventLoop | None:
    """Return the event loop of asyncio that a thread runs, None if it runs none."""
    while frame is not None and frame.f_code is not _RUN_FOREVER:
        frame = frame.f_back
    return None if frame is None else frame.f_locals["self"]


def _stacks_of_coroutines(loop: asyncio.AbstractEventLoop) -> Iterator[str]:
    for task in asyncio.all_tasks(loop):
        pairs = ((frame, frame.f_lineno) for frame in awaiting_frames(task))
        yield f"Coroutine {task.get_name()} (most recent call last):"
        yield "".join(traceback.StackSummary.extract(pairs).format())
