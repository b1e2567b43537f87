"""One event loop in a thread of its own, for every ``async def`` task of the process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from django.db import connections

from django_graphile_worker.worker import fork_guard
from django_graphile_worker.worker.outcomes import CancelledByWorker

if TYPE_CHECKING:
    from django_graphile_worker.worker.execution.coroutines.coroutine_run import CoroutineRun

logger = logging.getLogger("django_graphile_worker.worker")

# A loop that no coroutine blocks closes in a few milliseconds.
_CLOSE_TIMEOUT = 0.1


class EventLoop:
    """An event loop whose thread starts with the first coroutine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._running: set[CoroutineRun] = set()
        # The coroutines that the loop has to begin, and whether it has been called for them: one call wakes the loop
        # for all threads that start a coroutine before it runs again.
        self._waiting: deque[CoroutineRun] = deque()
        self._is_called = False
        # The coroutines that have ended, and whose threads the loop has to wake.
        self._ended: deque[CoroutineRun] = deque()
        # How many requests to stop a coroutine the loop has not run yet.
        self._unanswered_stops = 0
        self._is_cancelled = False
        self._is_closed = False
        self._cleanup_timeout = 0.0

    def run(self, start: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine to its end. Meanwhile the calling thread runs the synchronous calls of the coroutine."""
        # Late import: a worker without async tasks never needs it.
        from django_graphile_worker.worker.execution.coroutines.coroutine_run import CoroutineRun

        run = CoroutineRun(start, self._note_end)
        with self._lock:
            loop = self._running_loop()
            self._running.add(run)
            if self._is_cancelled:
                run.was_cancelled = True
            # Under the lock, so that the coroutine begins before it can be cancelled and before the loop can be closed.
            self._waiting.append(run)
            if not self._is_called:
                self._is_called = True
                loop.call_soon_threadsafe(self._begin_waiting, loop)
        try:
            return run.serve()
        finally:
            with self._lock:
                self._running.discard(run)

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
                for run in self._running:
                    self._loop.call_soon_threadsafe(run.cancel)

    def stop(self, run: CoroutineRun) -> None:
        """Cancel one coroutine, because its job has to stop."""
        with self._lock:
            if self._loop is not None and not self._is_closed:
                self._unanswered_stops += 1
                self._loop.call_soon_threadsafe(self._stop, run)

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
            for run in self._running:
                # The worker is the cause of every end from now on, even if a coroutine is protected from cancellation.
                run.was_cancelled = True
            if self._loop is not None and not was_closed:
                self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join(seconds + _CLOSE_TIMEOUT)

    def forget_running(self) -> None:
        """End the wait of every thread whose coroutine did not end before the loop was closed."""
        with self._lock:
            for run in self._running:
                run.forget()

    def _begin_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the coroutines that wait. Called on the loop."""
        # In this order: a coroutine that is added after the assignment calls again.
        self._is_called = False
        try:
            while self._waiting:
                self._waiting.popleft().begin(loop)
        finally:
            if self._waiting:
                # The task factory of a site raised an error: the others begin nevertheless.
                loop.call_soon(self._begin_waiting, loop)

    def _note_end(self, run: CoroutineRun) -> None:
        """Wake the thread of a coroutine after the callbacks that are due now. Called on the loop.

        A thread that wakes up earlier takes the lock of the interpreter away from the loop, at the next call of the
        system by any coroutine: with a hundred coroutines, loop and threads would mostly wait for each other.
        """
        self._ended.append(run)
        if len(self._ended) == 1:
            asyncio.get_running_loop().call_soon(self._wake_threads)

    def _wake_threads(self) -> None:
        # Two threads may do this at once: the loop, and the thread that stops the worker.
        with contextlib.suppress(IndexError):
            while True:
                self._ended.popleft().wake()

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
