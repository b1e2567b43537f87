"""``helpers.abort``: the request of the worker to a run of a job to stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from typing import Protocol

    class HasAbort(Protocol):
        """The run of a job, as ``Aborts`` needs it."""

        abort: Abort | None


class Abort:
    """The request to one run of a job to stop now. Async code may also await it. Every run has its own abort."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._waiters: dict[asyncio.Future[bool], asyncio.AbstractEventLoop] = {}

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the run has to stop, at most ``timeout`` seconds; return True if it has to stop."""
        return self._event.wait(timeout)

    def set(self) -> None:
        with self._lock:
            self._event.set()
            waiters, self._waiters = self._waiters, {}
        for future, loop in waiters.items():
            loop.call_soon_threadsafe(_resolve, future)

    def __bool__(self) -> bool:
        return self._event.is_set()

    def __await__(self) -> Generator[Any, None, bool]:
        return self._wait_on_loop().__await__()

    async def _wait_on_loop(self) -> bool:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        with self._lock:
            if self._event.is_set():
                return True
            self._waiters[future] = loop
        try:
            return await future
        finally:
            with self._lock:
                self._waiters.pop(future, None)


class Aborts:
    """The aborts of all runs of a worker. Each is made at the first use by its task: most tasks never use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Weak references. A thread that a task left running keeps its abort alive, and so gets the request, too.
        self._made: WeakSet[Abort] = WeakSet()
        self._are_all_set = False

    def of(self, run: HasAbort) -> Abort:
        """Return the abort of this run, and make it first if needed."""
        if run.abort is None:
            with self._lock:
                if run.abort is None:
                    abort = Abort()
                    self._made.add(abort)
                    if self._are_all_set:
                        abort.set()
                    run.abort = abort
        return run.abort

    def is_set_for(self, run: HasAbort) -> bool:
        return self._are_all_set or (run.abort is not None and run.abort.is_set())

    def set_for(self, run: HasAbort) -> None:
        """Request one run to stop now."""
        self.of(run).set()

    def set_all(self) -> None:
        """Request every run to stop now, and every run that begins later."""
        with self._lock:
            self._are_all_set = True
            made = list(self._made)
        for abort in made:
            abort.set()


def _resolve(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(True)
