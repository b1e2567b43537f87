"""One event loop in a thread of its own, for every ``async def`` task of the process.

The slot thread that waits for a coroutine meanwhile runs what the coroutine
hands to ``sync_to_async``. So a job's use of the ORM stays on one thread, with
that thread's connections, and the number of threads stays the concurrency.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections

from django_graphile_worker.exceptions import PermanentFailure, RetryLater

logger = logging.getLogger("django_graphile_worker.worker")

# A loop that nobody blocks is closed in a few milliseconds.
_SECONDS_TO_CLOSE = 0.1

_visit: ContextVar[_Visit | None] = ContextVar("graphile_worker_visit", default=None)


class CancelledByWorker(BaseException):
    """The worker, not the task, cancelled the coroutine: the grace period is over."""


class EventLoop:
    """Starts its thread with the first coroutine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._visits: set[_Visit] = set()
        self._is_cancelled = False
        self._is_closed = False
        self._seconds_to_clean_up = 0.0

    def run(self, start: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine to its end while the calling thread serves its synchronous parts."""
        visit = _Visit(start)
        with self._lock:
            loop = self._running_loop()
            self._visits.add(visit)
            if self._is_cancelled:
                visit.was_cancelled = True
            # Before it can be cancelled, and before the loop can be closed.
            loop.call_soon_threadsafe(visit.begin, loop)
        try:
            return visit.serve()
        finally:
            with self._lock:
                self._visits.discard(visit)

    @property
    def is_visited(self) -> bool:
        """Does anybody wait for a coroutine?"""
        return bool(self._visits)

    def cancel(self) -> None:
        """Cancel every coroutine, also those to come."""
        with self._lock:
            self._is_cancelled = True
            if self._loop is not None and not self._is_closed:
                for visit in self._visits:
                    self._loop.call_soon_threadsafe(visit.cancel)

    def close(self, seconds: float) -> None:
        """Stop the loop, with so much time for what else runs there; a coroutine that blocks it is left behind."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
            self._seconds_to_clean_up = seconds
            for visit in self._visits:
                # What ends from now on was ended by us, spared or not.
                visit.was_cancelled = True
            if self._loop is not None and not was_closed:
                self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join(seconds + _SECONDS_TO_CLOSE)

    def let_go(self) -> None:
        """The loop is closed: whoever waits for a coroutine that did not end waits no longer."""
        with self._lock:
            for visit in self._visits:
                visit.let_go()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._is_closed:
            raise CancelledByWorker
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._main, args=(self._loop,), name="graphile-worker-async", daemon=True
            )
            self._thread.start()
        return self._loop

    def _main(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._is_closed:
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # Raised in something that a task left running; asyncio lets it through.
                logger.exception("A background coroutine tried to end the worker; the event loop goes on.")
        try:
            loop.run_until_complete(_cancel_the_rest(self._seconds_to_clean_up))
            loop.run_until_complete(loop.shutdown_asyncgens())
        except BaseException:
            logger.exception("The event loop did not end cleanly.")
        finally:
            loop.close()
            # Of tasks that use the ORM on the loop, with DJANGO_ALLOW_ASYNC_UNSAFE.
            connections.close_all()


def spare_from_cancellation() -> None:
    """To be called where a coroutine hands the job itself to its thread, as async middleware around a plain task does.

    Nobody can cancel a thread. If only the coroutine were, then what came of the job would be known, and lost.
    """
    visit = _visit.get()
    if visit is not None:
        visit.is_spared = True


async def _cancel_the_rest(seconds: float) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=seconds)


class _Visit(Executor):
    """One coroutine on the loop, and the thread that waits for it."""

    def __init__(self, start: Callable[[], Awaitable[Any]]) -> None:
        self._start = start
        self._context = contextvars.copy_context()
        self._calls: SimpleQueue[tuple[Future[Any], Callable[..., Any], Any, Any] | None] = SimpleQueue()
        self._task: asyncio.Task[None] | None = None
        self._is_over = False
        self._result: Any = None
        self._error: BaseException | None = None
        self.was_cancelled = False
        self.is_spared = False

    # On the waiting thread.

    def serve(self) -> Any:
        """Run synchronous calls until the coroutine is over."""
        while (call := self._calls.get()) is not None:
            _answer(*call)
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
        key = ThreadSensitiveContext()
        SyncToAsync.thread_sensitive_context.set(key)
        SyncToAsync.context_to_thread_executor[key] = self
        try:
            self._result = await self._start()
        except BaseException as error:  # SystemExit would end the loop
            self._error = error

    def _finish(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            # Cancelled before its first step.
            self._error = asyncio.CancelledError()
        self._is_over = True
        self._calls.put(None)

    # On whatever thread closes the loop.

    def let_go(self) -> None:
        """Nobody runs the coroutine any more."""
        self._error, self.was_cancelled, self._is_over = asyncio.CancelledError(), True, True
        self._calls.put(None)

    # What sync_to_async sees of it.

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._is_over:
            raise RuntimeError(
                "expected synchronous calls while the job runs, got one after its end: await what the task starts."
            )
        future: Future[Any] = Future()
        self._calls.put((future, function, args, kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """The thread belongs to the worker."""


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
