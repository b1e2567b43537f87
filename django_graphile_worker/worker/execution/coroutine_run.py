"""One coroutine on the event loop, and the slot's thread that waits for it.

While the thread waits, it runs what the coroutine passes to ``sync_to_async``. So a job's use of the ORM stays on one
thread, with the connections of that thread, and async jobs need no more threads than ``CONCURRENCY``. A coroutine can
begin without a thread: the event loop calls a thread for its first synchronous call.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from contextvars import ContextVar
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext

from django_graphile_worker.exceptions import PermanentFailure, RetryLater
from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.outcomes import CancelledByWorker

if TYPE_CHECKING:
    # A circle: the loop makes the runs.
    from django_graphile_worker.worker.execution.event_loop import EventLoop

_current: ContextVar[CoroutineRun | None] = ContextVar("graphile_worker_coroutine_run", default=None)


def protect_from_cancellation() -> None:
    """Keep the worker from cancelling the current coroutine.

    Called where a coroutine passes the job itself to its thread, as async middleware around a plain task does. A
    thread cannot be cancelled: if only the coroutine were cancelled, the outcome of the job would be lost.
    """
    run = _current.get()
    if run is not None:
        run.is_protected = True


class CoroutineRun:
    """A coroutine, its result, and the synchronous calls that the waiting thread runs for it."""

    def __init__(self, start: Callable[[], Awaitable[Any]], event_loop: EventLoop, job_run: Any = None) -> None:
        self._start: Callable[[], Awaitable[Any]] | None = start
        self._event_loop = event_loop
        # The ``JobRun`` of the coroutine, while no thread waits for it and none has been called.
        self.job_run = job_run
        self._context: contextvars.Context | None = contextvars.copy_context()
        self._calls: SimpleQueue[tuple[Future[Any], Callable[..., Any], Any, Any] | None] = SimpleQueue()
        self._task: asyncio.Task[None] | None = None
        self._is_over = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._generation = fork_guard.generation
        self.was_cancelled = False
        # Whether the coroutine was to stop before it began.
        self._must_stop = False
        self.is_protected = False

    # Called on the waiting thread.

    def serve(self) -> Any:
        """Run synchronous calls until the coroutine has ended; return its result, or raise what it raised."""
        while (call := self._calls.get()) is not None:
            _run_call(*call)
            fork_guard.end_child(self._generation)
        self._cancel_late_calls()
        # Not kept: a timer or a connection that the coroutine made may keep its context, and so this object.
        error, self._error = self._error, None
        result, self._result = self._result, None
        if error is None:
            return result
        try:
            if self.was_cancelled and not isinstance(error, RetryLater | PermanentFailure):
                raise CancelledByWorker from error
            raise error
        finally:
            # The traceback refers to this frame: without the variable there is no reference cycle.
            del error

    def _cancel_late_calls(self) -> None:
        # No other thread takes calls.
        while not self._calls.empty():
            if (call := self._calls.get()) is not None:
                call[0].cancel()

    # Called on the loop.

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._task = loop.create_task(self._drive(), context=self._context)
        self._task.add_done_callback(self._finish)
        if self.was_cancelled or self._must_stop:
            self._task.cancel()

    def cancel(self) -> None:
        """Cancel the coroutine, because the worker stops; before its first step, if it has not begun."""
        if not self._is_over and not self.is_protected:
            self.was_cancelled = True
            self.stop()

    def stop(self) -> None:
        """Cancel the coroutine, because its job has to stop: it raises ``CancelledError`` at its next await."""
        if self._task is None:
            self._must_stop = True
        elif not self.is_protected:
            self._task.cancel()

    @property
    def current_task(self) -> asyncio.Task[None] | None:
        """The task of the coroutine while it runs."""
        return self._task

    async def _drive(self) -> None:
        _current.set(self)
        # Set without asgiref's context manager, which does nothing inside another context: the thread of that context
        # waits for this coroutine. A private interface of asgiref; a test watches it.
        SyncToAsync.thread_sensitive_context.set(_KEY)
        if _KEY not in SyncToAsync.context_to_thread_executor:
            # This is the first coroutine, or the site has emptied the dictionary. Without the entry, asgiref would use
            # one thread for all jobs.
            SyncToAsync.context_to_thread_executor[_KEY] = _EXECUTOR
        try:
            assert self._start is not None
            self._result = await self._start()
        except BaseException as error:  # SystemExit would end the loop
            self._error = error

    def _finish(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            # The coroutine was cancelled before its first step, so _drive() has noted no error.
            self._error = asyncio.CancelledError()
        self._end()
        self._event_loop.note_end(self)

    def wake(self) -> None:
        """End the wait of the thread: the coroutine has ended."""
        self._calls.put(None)

    # Called on the thread that closes the loop.

    def forget(self) -> None:
        """End the wait of the thread: the loop is closed, so the coroutine never continues."""
        self._error, self.was_cancelled = asyncio.CancelledError(), True
        self._end()
        self.wake()

    def _end(self) -> None:
        self._is_over = True
        # The context refers to this object, and the function refers to the run of the job, which refers to this object:
        # with the job's payload and its result, they would wait for the garbage collector.
        self._task = self._context = self._start = None

    # Called by sync_to_async.

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have the waiting thread call a function."""
        if self._is_over:
            # A coroutine that the task left running.
            raise RuntimeError(
                "expected synchronous calls while the job runs, got a call after its end: await what the task starts."
            )
        future: Future[Any] = Future()
        self._calls.put((future, function, args, kwargs))
        # After the call is in place: the thread that comes runs it.
        if self.job_run is not None:
            self._event_loop.call_thread(self)
        return future


class _ExecutorOfCurrentRun(Executor):
    """What asgiref submits synchronous calls to: it passes them on to the run of the coroutine that makes the call.

    All coroutines have it in common. An executor for each would have to be entered in asgiref's dictionary, and removed
    from it, for every job.
    """

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        run = _current.get()
        if run is None:
            raise RuntimeError("expected a synchronous call in the context of a job, got a call in another context.")
        return run.submit(function, *args, **kwargs)


_EXECUTOR = _ExecutorOfCurrentRun()
# The key under which asgiref finds the executor.
_KEY = ThreadSensitiveContext()


def _run_call(future: Future[Any], function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function(*args, **kwargs)
    except StopIteration as error:
        # A future of asyncio cannot carry StopIteration, and would never be done.
        stopped = RuntimeError("a synchronous function raised StopIteration")
        stopped.__cause__ = error
        future.set_exception(stopped)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
