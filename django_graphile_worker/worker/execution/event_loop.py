"""One event loop in a thread of its own, for every ``async def`` task of the process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from django.db import connections

from django_graphile_worker.worker import fork_guard

if TYPE_CHECKING:
    from django_graphile_worker.worker.execution.coroutine_run import CoroutineRun

logger = logging.getLogger("django_graphile_worker.worker")

# A loop that nobody blocks is closed in a few milliseconds.
_SECONDS_TO_CLOSE = 0.1


class CancelledByWorker(BaseException):
    """The worker, not the task, cancelled the coroutine: the grace period is over."""


class EventLoop:
    """Starts its thread with the first coroutine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._visits: set[CoroutineRun] = set()
        self._is_cancelled = False
        self._is_closed = False
        self._seconds_to_clean_up = 0.0

    def run(self, start: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine to its end while the calling thread serves its synchronous parts."""
        # Here, as it takes a coroutine to need it.
        from django_graphile_worker.worker.execution.coroutine_run import CoroutineRun

        visit = CoroutineRun(start)
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
        born_in, thread_id = fork_guard.generation, threading.get_ident()

        def end_child() -> None:
            # In a process that was forked on the loop: it may end what it does, but the loop does not go on.
            if threading.get_ident() == thread_id:
                _call_next(loop, lambda: fork_guard.end_child(born_in))

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


def _call_next(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """As call_soon, but before all that waits already: steps of other jobs, which are not to be run here."""
    handle = loop.call_soon(function)
    # Private to asyncio, and another loop may have none: then the others have their step.
    waiting = getattr(loop, "_ready", None)
    if isinstance(waiting, deque) and waiting[-1] is handle:
        waiting.rotate(1)


async def _cancel_the_rest(seconds: float) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=seconds)
