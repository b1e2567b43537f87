"""Writes the stacks of all threads and coroutines, to find out where a job hangs.

The stacks are read with the lock of the interpreter held. ``faulthandler`` reads them without the lock, and then a
busy process can die: a thread may free a frame while its stack is read.
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
from collections.abc import Iterator
from types import FrameType
from typing import IO, Any

_RUN_FOREVER = BaseEventLoop.run_forever.__code__


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


def register(number: signal.Signals) -> bool:
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
    # Late import: a worker that gets no such signal and stops no run does without the module.
    from django_graphile_worker.worker.control.position import frames_by_thread

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
    # Late import: a worker that gets no such signal and stops no run does without the module.
    from django_graphile_worker.worker.control.position import awaiting_frames

    for task in asyncio.all_tasks(loop):
        pairs = ((frame, frame.f_lineno) for frame in awaiting_frames(task))
        yield f"Coroutine {task.get_name()} (most recent call last):"
        yield "".join(traceback.StackSummary.extract(pairs).format())
