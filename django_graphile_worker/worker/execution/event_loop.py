"""One event loop in a thread of its own, for every ``async def`` task of the process, and the runs of its coroutines.

While the thread of a slot waits for a coroutine, it runs what the coroutine passes to ``sync_to_async``. So a job's use
of the ORM stays on one thread, with the connections of that thread, and async jobs need no more threads than
``CONCURRENCY``. A coroutine can begin without a thread: the event loop calls a thread for its first synchronous call.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from contextvars import ContextVar
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections

from django_graphile_worker.exceptions import PermanentFailure, RetryLater
from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.outcomes import CancelledByWorker

if TYPE_CHECKING:
    # The pool is above the execution.
    from django_graphile_worker.worker.pool.threads import CoroutineSlots

logger = logging.getLogger("django_graphile_worker.worker")

THREAD_NAME = "graphile-worker-async"
# A loop that no coroutine blocks closes in a few milliseconds.
_CLOSE_TIMEOUT = 0.1
# Seconds between two checks for runs that have ended and wait for a thread.
CHECK_INTERVAL = 0.02
_current: ContextVar[CoroutineRun | None] = ContextVar("graphile_worker_coroutine_run", default=None)


class EventLoop:
    """An event loop whose thread starts with the first coroutine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._running: set[CoroutineRun] = set()  # copied before a loop over it: threads change it without the lock
        # The coroutines that no thread waits for yet, and how they get a thread: None without a pool.
        self._without_thread: set[CoroutineRun] = set()
        self.threads: CoroutineSlots | None = None
        # The coroutines that the loop has to begin, and whether it has been called for all of them.
        self._waiting: deque[CoroutineRun] = deque()
        self._is_called = False
        # The coroutines that have ended and whose threads the loop has to wake.
        self._ended: deque[CoroutineRun] = deque()
        # Whether the loop checks again soon for runs that wait for a thread.
        self._is_checking = False
        # How many requests to stop a coroutine the loop has not run yet.
        self._unanswered_stops = 0
        self._is_cancelled = False
        self._is_closed = False
        self._cleanup_timeout = 0.0

    def run(self, start: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine to its end. Meanwhile the calling thread runs the synchronous calls of the coroutine."""
        return self.wait_for(self.start(start))

    def start(self, start: Callable[[], Awaitable[Any]], job_run: JobRun | None = None) -> CoroutineRun:
        """Start a coroutine; ``wait_for()`` returns its result.

        With ``job_run``, no thread need wait for it: when it ends, makes a synchronous call or has to stop, a thread is
        called to resume this run. Two changes of threads for each job would take longer than many coroutines do.
        """
        with self._lock:
            loop = self._running_loop()
            run = CoroutineRun(start, self, job_run)
            self._running.add(run)
            if job_run is not None:
                # Before the coroutine can begin: a thread that resumes the run must not start another.
                job_run.coroutine = run
                self._without_thread.add(run)
            if self._is_cancelled:
                run.was_cancelled = True
            self._waiting.append(run)
            is_called, self._is_called = self._is_called, True
        if not is_called:
            # Not under the lock: the call lets the loop run, and threads that start a coroutine would wait meanwhile.
            # If the loop has been closed since, ``forget_running()`` ends the run.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._begin_waiting, loop)
        return run

    def wait_for(self, run: CoroutineRun) -> Any:
        """Wait for the end of a coroutine, and run its synchronous calls on the calling thread; return its result."""
        try:
            return run.serve()
        finally:
            self._running.discard(run)

    @property
    def has_started(self) -> bool:
        """Whether the loop has ever run a coroutine."""
        return self._loop is not None

    @property
    def has_coroutines(self) -> bool:
        """Whether a thread waits for a coroutine."""
        return bool(self._running)

    def cancel(self) -> None:
        """Cancel every coroutine, and every coroutine that begins later."""
        # A coroutine that blocks the loop must not delay the outcomes of those that have ended.
        self._wake_threads()
        with self._lock:
            self._is_cancelled = True
            if self._loop is not None and not self._is_closed:
                for run in list(self._running):
                    self._loop.call_soon_threadsafe(run.cancel)

    def stop(self, run: CoroutineRun) -> None:
        """Cancel one coroutine, because its job has to stop."""
        with self._lock:
            if self._loop is not None and not self._is_closed:
                self._unanswered_stops += 1
                self._loop.call_soon_threadsafe(self._stop, run)

    def call_thread(self, run: CoroutineRun) -> None:
        """Have a thread wait for a coroutine, unless a thread does or has been called."""
        job_run = self._take_job_run(run)
        if job_run is not None and self.threads is not None:
            self.threads.resume(job_run)

    def _take_job_run(self, run: CoroutineRun) -> JobRun | None:
        try:
            # One step, which no other thread can interrupt: one of several threads gets the run.
            self._without_thread.remove(run)
        except KeyError:
            return None
        # The run refers to the coroutine: without this line there would be a reference cycle.
        job_run: JobRun | None = run.job_run
        run.job_run = None
        return job_run

    def _stop(self, run: CoroutineRun) -> None:
        """Cancel one coroutine. Called on the loop."""
        with self._lock:
            self._unanswered_stops -= 1
        run.stop()

    def leave(self, run: CoroutineRun) -> None:
        """End the wait of the thread for one coroutine, which is cancelled as soon as the loop runs again."""
        with self._lock:
            task = run.current_task
            if task is not None and self._loop is not None and not self._is_closed:
                self._loop.call_soon_threadsafe(task.cancel)
        run.forget()

    @property
    def is_blocked(self) -> bool:
        """Whether the loop has not run the last requests to stop a coroutine: a coroutine blocks it."""
        return self._unanswered_stops > 0

    def close(self, seconds: float) -> None:
        """Stop the loop. Everything else on it has ``seconds`` to end; a coroutine that blocks it is left behind."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
            self._cleanup_timeout = seconds
            for run in list(self._running):
                # The worker is the cause of every end from now on, even if a coroutine is protected from cancellation.
                run.was_cancelled = True
            if self._loop is not None and not was_closed:
                self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join(seconds + _CLOSE_TIMEOUT)

    def forget_running(self) -> None:
        """End the wait of every thread whose coroutine did not end before the loop was closed."""
        with self._lock:
            for run in list(self._running):
                run.forget()
        for run in list(self._without_thread):
            self.call_thread(run)

    def _begin_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the coroutines that wait. Called on the loop."""
        # In this order: a coroutine that is added after the assignment calls again.
        self._is_called = False
        if self._is_closed:
            return
        try:
            while self._waiting:
                self._waiting.popleft().begin(loop)
        finally:
            if self._waiting:
                # The task factory of a site raised an error: the others begin nevertheless.
                loop.call_soon(self._begin_waiting, loop)

    def note_end(self, run: CoroutineRun) -> None:
        """Wake the thread of a coroutine after the callbacks that are due now. Called on the loop.

        A thread that wakes up earlier takes the lock of the interpreter away from the loop, at the next call of the
        system by any coroutine: with a hundred coroutines, loop and threads would mostly wait for each other.
        """
        self._ended.append(run)
        if len(self._ended) == 1:
            asyncio.get_running_loop().call_soon(self._serve_ended)

    def _serve_ended(self) -> None:
        self._wake_threads()
        if self.threads is not None and not self._is_checking:
            self._is_checking = True
            asyncio.get_running_loop().call_later(CHECK_INTERVAL, self._check_again)

    def _check_again(self) -> None:
        """Have more threads resume runs, if they wait for a thread that does slow work. Called on the loop."""
        assert self.threads is not None
        self._is_checking = self.threads.call_more()
        if self._is_checking:
            asyncio.get_running_loop().call_later(CHECK_INTERVAL, self._check_again)

    def _wake_threads(self) -> None:
        # Two threads may do this at once: the loop, and the thread that stops the worker.
        ended: list[JobRun] = []
        with contextlib.suppress(IndexError):
            while True:
                run = self._ended.popleft()
                run.wake()
                if self._without_thread and (job_run := self._take_job_run(run)) is not None:
                    ended.append(job_run)
        if ended and self.threads is not None:
            self.threads.resume_ended(ended)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._is_closed:
            raise CancelledByWorker
        if self._loop is None:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=self._main, args=(loop,), name=THREAD_NAME, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # The system allows no more threads: leave no loop behind.
                loop.close()
                raise
            self._loop, self._thread = loop, thread
        return self._loop

    def _main(self, loop: asyncio.AbstractEventLoop) -> None:
        generation, thread_id = fork_guard.generation, threading.get_ident()

        def end_child() -> None:
            # In a process that a coroutine forked, the current step may finish, but the loop must not continue.
            if threading.get_ident() == thread_id:
                _call_next(loop, lambda: fork_guard.end_child(generation))

        fork_guard.call_in_child(f"event loop {thread_id}", end_child)
        try:
            self._serve(loop)
        finally:
            fork_guard.call_in_child(f"event loop {thread_id}", None)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._is_closed:
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # asyncio lets these exceptions pass. They come from a coroutine that a task left running.
                logger.exception("A background coroutine tried to end the worker; the event loop continues.")
        try:
            loop.run_until_complete(_cancel_the_rest(self._cleanup_timeout))
            loop.run_until_complete(loop.shutdown_asyncgens())
        except BaseException:
            logger.exception("The event loop did not end cleanly.")
        finally:
            self._wake_threads()
            loop.close()
            # Tasks that use the ORM on the loop, with DJANGO_ALLOW_ASYNC_UNSAFE, open connections on this thread.
            connections.close_all()


def _call_next(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Call a function before all callbacks that wait already: they are steps of other jobs, and must not run here."""
    handle = loop.call_soon(function)
    # A private attribute of asyncio; a test watches it. Another loop may not have it: then the other callbacks run
    # first.
    waiting = getattr(loop, "_ready", None)
    if isinstance(waiting, deque) and waiting[-1] is handle:
        waiting.rotate(1)


async def _cancel_the_rest(seconds: float) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=seconds)


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
                "A coroutine made a synchronous call after the end of its job: await what the task starts."
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
            raise RuntimeError("A synchronous call was made outside the context of a job.")
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
