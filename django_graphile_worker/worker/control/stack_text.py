"""The stack of a task as text: it says where the task was when its stop began."""

from __future__ import annotations

import inspect
import traceback
from asyncio import Task as AsyncioTask
from collections.abc import Iterator
from types import FrameType
from typing import Any

from django_graphile_worker.worker.control.position import Position, frames_by_thread
from django_graphile_worker.worker.execution.error_text import OWN_FOLDERS

# The innermost frames say where a task is; a recursion could have thousands.
MOST_FRAMES = 50


def stack_text(position: Position) -> str:
    """Return the stack of the task, in the order of a traceback; an empty string if it cannot be read."""
    try:
        run = position.coroutine_run
        frames = _frames_of(run.current_task) if run is not None and run.current_task is not None else []
        # A coroutine that waits for a synchronous call waits for the code on the thread.
        frames += reversed(list(_own_frames(position.frame)))
        shown = [frame for frame in frames if not frame.f_code.co_filename.startswith(OWN_FOLDERS)][-MOST_FRAMES:]
        pairs = ((frame, frame.f_lineno) for frame in shown)
        return "".join(traceback.StackSummary.extract(pairs).format()).rstrip()
    except Exception:
        return ""


def _own_frames(innermost: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of the thread, from the innermost out to the executor."""
    while innermost is not None:
        yield innermost
        if innermost.f_code.co_filename.startswith(OWN_FOLDERS) and innermost.f_code.co_name == "_run":
            return
        innermost = innermost.f_back


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


def _out_to(outermost: FrameType, innermost: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of a thread, from the innermost out to a frame, or to the first if that is not among them."""
    while innermost is not None:
        yield innermost
        if innermost is outermost:
            return
        innermost = innermost.f_back
