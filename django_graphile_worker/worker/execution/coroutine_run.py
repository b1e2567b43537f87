"""A coroutine's visit to the event loop, seen from the slot thread that waits for it.

The thread meanwhile runs what the coroutine hands to ``sync_to_async``. So a job's
use of the ORM stays on one thread, with that thread's connections, and the number
of threads stays the concurrency.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

from asgiref.sync import SyncToAsync, ThreadSensitiveContext

from django_graphile_worker.exceptions import PermanentFailure, RetryLater
from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.execution.event_loop import CancelledByWorker

_visit: ContextVar[CoroutineRun | None] = ContextVar("graphile_worker_visit", default=None)


def spare_from_cancellation() -> None:
    """To be called where a coroutine hands the job itself to its thread, as async middleware around a plain task does.

    Nobody can cancel a thread. If only the coroutine were, then what came of the job would be known, and lost.
    """
    visit = _visit.get()
    if visit is not None:
        visit.is_spared = True


class CoroutineRun(Executor):
    """One coroutine on the loop, and the thread that waits for it."""

    def __init__(self, start: Callable[[], Awaitable[Any]]) -> None:
        self._start = start
        self._context: contextvars.Context | None = contextvars.copy_context()
        # By this asgiref finds it.
        self._key = ThreadSensitiveContext()
        self._calls: SimpleQueue[tuple[Future[Any], Callable[..., Any], Any, Any] | None] = SimpleQueue()
        self._task: asyncio.Task[None] | None = None
        self._is_over = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._born_in = fork_guard.generation
        self.was_cancelled = False
        self.is_spared = False

    # On the waiting thread.

    def serve(self) -> Any:
        """Run synchronous calls until the coroutine is over."""
        while (call := self._calls.get()) is not None:
            _answer(*call)
            fork_guard.end_child(self._born_in)
        self._refuse_latecomers()
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            if self.was_cancelled and not isinstance(error, RetryLater | PermanentFailure):
                raise CancelledByWorker from error
            raise error
        finally:
            del error

    def _refuse_latecomers(self) -> None:
        try:
            while (call := self._calls.get_nowait()) is not None:
                call[0].cancel()
        except Empty:
            pass

    # On the loop.

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._task = loop.create_task(self._drive(), context=self._context)
        self._task.add_done_callback(self._finish)
        if self.was_cancelled:
            self._task.cancel()

    def cancel(self) -> None:
        if self._task is not None and not self.is_spared:
            self.was_cancelled = True
            self._task.cancel()

    async def _drive(self) -> None:
        _visit.set(self)
        # Set by hand: the context manager gives way to an enclosing one, whose thread is busy with us.
        SyncToAsync.thread_sensitive_context.set(self._key)
        SyncToAsync.context_to_thread_executor[self._key] = self
        try:
            self._result = await self._start()
        except BaseException as error:  # SystemExit would end the loop
            self._error = error

    def _finish(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            # Cancelled before its first step.
            self._error = asyncio.CancelledError()
        self._end()

    # On whatever thread closes the loop.

    def let_go(self) -> None:
        """Nobody runs the coroutine any more."""
        self._error, self.was_cancelled = asyncio.CancelledError(), True
        self._end()

    def _end(self) -> None:
        self._is_over = True
        # The context knows this visit, and asgiref would keep both for good, with the job's payload and its result.
        self._task = self._context = None
        if self._key in SyncToAsync.context_to_thread_executor:
            SyncToAsync.context_to_thread_executor[self._key] = _ENDED
        self._calls.put(None)

    # What sync_to_async sees of it.

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._is_over:
            return _ENDED.submit(function)
        future: Future[Any] = Future()
        self._calls.put((future, function, args, kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """The thread belongs to the worker."""


class _Ended(Executor):
    """What is found in the place of a visit that is over, by what its coroutine has left running."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "expected synchronous calls while the job runs, got one after its end: await what the task starts."
        )


_ENDED = _Ended()


def _answer(future: Future[Any], function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function(*args, **kwargs)
    except StopIteration as error:
        # asyncio's futures cannot carry it, and would never be done.
        stopped = RuntimeError("a synchronous function raised StopIteration")
        stopped.__cause__ = error
        future.set_exception(stopped)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
