"""The stop of one run: what the thread that runs the job and the thread that stops it decide between them.

The thread that stops the run raises an exception in the other thread, and cancels its queries. Both must happen only
while the task runs: an exception or a cancelled query that comes later would hit the next job of the thread. So each
of these steps holds a lock, and the thread that runs the job takes the lock for good when its task has ended.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django_graphile_worker.exceptions import TaskCancelled, TaskStopped, TaskTimeout
from django_graphile_worker.worker.job_stop import Stop
from django_graphile_worker.worker.outcomes import EndedWithoutThread

_EXCEPTIONS: dict[str, type[TaskStopped]] = {"timeout": TaskTimeout, "cancelled": TaskCancelled}


class StopOfRun:
    """The stop of one run, shared by the thread that runs the job and the thread that stops it."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        # Reentrant, so that the thread of the run can take it again after an exception that arrived late.
        self._lock = threading.RLock()
        # Whether the run has ended although its thread has not.
        self.is_without_thread = False
        # Where the task was when the stop began.
        self.stack_text = ""

    @property
    def exception_class(self) -> type[TaskStopped]:
        return _EXCEPTIONS[self.stop.kind]

    @contextmanager
    def step(self) -> Iterator[bool]:
        """Keep the run from ending during the block; yield False if its task has ended. For the thread that stops."""
        is_free = self._lock.acquire(blocking=False)
        try:
            yield is_free
        finally:
            if is_free:
                self._lock.release()

    def raise_in(self, thread_id: int) -> None:
        """Raise the exception in a thread, at its next step in Python. Called in a step."""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(self.exception_class))

    def leave_task(self) -> None:
        """Wait for the step under way, and drop its exception. Called on the thread of the run, after its task.

        Later steps find that the task has ended. So what follows, such as a commit, is not interrupted.
        """
        with self._lock:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)

    def close(self) -> None:
        """Wait for the step under way, and let no other begin. Called on the thread of the run, after its task.

        The exception of the last step may still arrive while this method runs: then it must be called again.
        """
        # Taken for good.
        self._lock.acquire()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)
        if self.is_without_thread:
            raise EndedWithoutThread
