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

_RUN_FOREVER = BaseEventLoop.run_forever.__code__


class StackDump:
    """A signal handler that writes the stacks."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self, number: int, frame: FrameType | None) -> None:
        # On a thread of its own: the main thread may hold a lock that the writing needs. `_thread`, because
        # `threading` takes such a lock to start a thread.
        _thread.start_new_thread(write_stacks, (self._descriptor,))


def register(number: signal.Signals) -> bool:
    """Have a signal write the stacks to standard error; return False if there is no such stream."""
    for out in (sys.stderr, sys.__stderr__):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            signal.signal(number, StackDump(out.fileno()))  # type: ignore[union-attr]
            return True
    return False


def is_free(number: signal.Signals) -> bool:
    """Does nobody but this module handle the signal?"""
    handler = signal.getsignal(number)
    return handler is signal.SIG_DFL or isinstance(handler, StackDump)


def write_stacks(descriptor: int) -> None:
    """Write the stacks of the other threads, and of the coroutines that wait."""
    text = memoryview("\n".join(_stacks()).encode(errors="backslashreplace"))
    with contextlib.suppress(OSError):
        while text:
            text = text[os.write(descriptor, text) :]


def _stacks() -> Iterator[str]:
    # Late import: a worker that gets no such signal and stops no run does without the module.
    from django_graphile_worker.worker.control.position import frames_by_thread

    yield f"Stacks of process {os.getpid()}:"
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = frames_by_thread()
    frames.pop(threading.get_ident())
    for ident, frame in frames.items():
        yield f"Thread {names.get(ident, ident)} (most recent call last):"
        yield "".join(traceback.format_stack(frame))
    for loop in filter(None, map(_running_loop, frames.values())):
        yield from _stacks_of_coroutines(loop)


def _running_loop(frame: FrameType | None) -> asyncio.AbstractEventLoop | None:
    """Return the event loop that a thread runs, None if it runs none."""
    while frame is not None and frame.f_code is not _RUN_FOREVER:
        frame = frame.f_back
    return None if frame is None else frame.f_locals["self"]


def _stacks_of_coroutines(loop: asyncio.AbstractEventLoop) -> Iterator[str]:
    # Late import: a worker that gets no such signal and stops no run does without the module.
    from django_graphile_worker.worker.control.stack_text import awaiting_frames

    for task in asyncio.all_tasks(loop):
        pairs = ((frame, frame.f_lineno) for frame in awaiting_frames(task))
        yield f"Coroutine {task.get_name()} (most recent call last):"
        yield "".join(traceback.StackSummary.extract(pairs).format())
