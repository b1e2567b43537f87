"""Where a run is at this moment: its thread, and the frame that the thread executes.

Nothing is noted when a job begins: few runs are stopped, and a note would cost every job. The stacks of the threads
say which thread runs the job, and whether it is inside the task, where an exception may be raised.
"""

from __future__ import annotations

import gc
import inspect
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from django_graphile_worker.worker.execution import invoker
from django_graphile_worker.worker.execution.coroutines.coroutine_run import CoroutineRun
from django_graphile_worker.worker.execution.coroutines.event_loop import EventLoop
from django_graphile_worker.worker.execution.executor import Executor
from django_graphile_worker.worker.execution.job_run import JobRun

_EXECUTOR = Executor._run.__code__
_WAIT_FOR_COROUTINE = EventLoop.wait_for.__code__
_START_COROUTINE = EventLoop.start.__code__
# The functions of the invoker that call a task have this name. The commit of an atomic task is outside of them.
_INVOKE = (invoker.__file__, "invoke")
# ``connect`` is decorated; the frame has the code of the function itself.
_CONNECT = inspect.unwrap(BaseDatabaseWrapper.connect).__code__
IMPORT_SYSTEM = "<frozen importlib"

# One thread at a time: it must not turn on the collector while another thread reads the frames.
_reading_frames = threading.Lock()


class Position(NamedTuple):
    """The thread of a run whose task runs, and the innermost frame of the thread."""

    thread_id: int
    frame: FrameType
    # Whether the task imports a module or opens a Django connection. A stop would leave it half done.
    is_importing_or_connecting: bool = False

    @property
    def coroutine_run(self) -> CoroutineRun | None:
        """The coroutine that the thread waits for; None if the task runs on the thread itself."""
        for frame in _stack(self.frame):
            if frame.f_code is _WAIT_FOR_COROUTINE:
                return frame.f_locals.get("run")
            if frame.f_code is _EXECUTOR:
                break
        return None


def frames_by_thread() -> dict[int, FrameType]:
    """Return the innermost frame of each thread, by the id of the thread.

    The collector is off meanwhile. Until Python 3.12, it could run inside of the call, which holds a lock of the
    interpreter; if it then let another thread continue that starts a thread, both would wait for each other for ever.
    """
    with _reading_frames:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()
        finally:
            if was_enabled:
                gc.enable()


def position_of(run: JobRun) -> Position | None:
    """Return where a run is; None if its task has not begun or has ended."""
    for thread_id, frame in frames_by_thread().items():
        position = _position_in_task(thread_id, frame, run)
        if position is not None:
            return position
    return None


def _position_in_task(thread_id: int, innermost: FrameType, run: JobRun) -> Position | None:
    """Read the stack once: the thread continues meanwhile, and a frame that has ended does not know its caller."""
    is_in_task = is_importing_or_connecting = False
    for frame in _stack(innermost):
        code = frame.f_code
        if code is _EXECUTOR and frame.f_locals.get("run") is run:
            return Position(thread_id, innermost, is_importing_or_connecting) if is_in_task else None
        if code is _START_COROUTINE:
            # The task begins on another thread. If the run ended here, its coroutine would run on.
            return None
        if (code.co_filename, code.co_name) == _INVOKE:
            is_in_task = True
        elif not is_in_task and (code is _CONNECT or code.co_filename.startswith(IMPORT_SYSTEM)):
            is_importing_or_connecting = True
    return None


def _stack(innermost: FrameType | None) -> Iterator[FrameType]:
    while innermost is not None:
        yield innermost
        innermost = innermost.f_back
