"""Where a run is at this moment: its thread, the frame that the thread executes, and the stack of its task as text.

Nothing is noted when a job begins: few runs are stopped, and a note would cost every job. The stacks of the threads
say which thread runs the job, and whether it is inside the task, where an exception may be raised.
"""

from __future__ import annotations

import gc
import inspect
import sys
import threading
import traceback
from asyncio import Task as AsyncioTask
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

from django_graphile_worker.logs.errors import OWN_FOLDERS
from django_graphile_worker.worker.execution import invoker
from django_graphile_worker.worker.execution.event_loop import CoroutineRun, EventLoop
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
# The innermost frames say where a task is; a recursion could have thousands.
MAX_FRAMES = 50

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


# The stack of a task as text, which says where the task was when its stop began.


def stack_text(position: Position) -> str:
    """Return the stack of the task, in the order of a traceback; an empty string if it cannot be read."""
    try:
        run = position.coroutine_run
        frames = _frames_of(run.current_task) if run is not None and run.current_task is not None else []
        # A coroutine that waits for a synchronous call waits for the code on the thread.
        frames += reversed(list(_frames_in_run(position.frame)))
        shown = [frame for frame in frames if not frame.f_code.co_filename.startswith(OWN_FOLDERS)][-MAX_FRAMES:]
        pairs = ((frame, frame.f_lineno) for frame in shown)
        return "".join(traceback.StackSummary.extract(pairs).format()).rstrip()
    except Exception:
        return ""


def _frames_in_run(innermost: FrameType) -> Iterator[FrameType]:
    """Yield the frames of the thread, from the innermost out to the executor."""
    for frame in _stack(innermost):
        yield frame
        if frame.f_code is _EXECUTOR:
            return


def _frames_of(task: AsyncioTask[Any]) -> list[FrameType]:
    """Return the frames of a coroutine, from the outermost to the place where it is."""
    frames = list(awaiting_frames(task))
    if not frames:
        return []
    for innermost in frames_by_thread().values():
        # The event loop runs the coroutine at this moment: it blocks the loop.
        running = list(_out_to(frames[0], innermost))
        if running and running[-1] is frames[0]:
            return running[::-1]
    return frames


def awaiting_frames(waiting: Any) -> Iterator[FrameType]:
    """Yield the frames of a coroutine that waits, from the outermost to its await."""
    seen: set[int] = set()
    while waiting is not None and id(waiting) not in seen:
        seen.add(id(waiting))
        if isinstance(waiting, AsyncioTask):
            waiting = waiting.get_coro()
        elif inspect.iscoroutine(waiting):
            if waiting.cr_frame is not None:
                yield waiting.cr_frame
            waiting = waiting.cr_await
        else:
            return


def _out_to(outermost: FrameType, innermost: FrameType) -> Iterator[FrameType]:
    """Yield the frames of a thread, from the innermost out to a frame, or to the first if that is not among them."""
    for frame in _stack(innermost):
        yield frame
        if frame is outermost:
            return
