"""Stops one run, step by step: a request, cancelled queries, an exception, and at last an end without its thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from django.db import connections

from django_graphile_worker.worker.control import queries
from django_graphile_worker.worker.control.position import IMPORT_SYSTEM, Position, position_of
from django_graphile_worker.worker.control.stack_text import stack_text
from django_graphile_worker.worker.execution.error_text import OWN_FOLDERS
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.execution.stops.stop_of_run import StopOfRun

if TYPE_CHECKING:
    from typing import Protocol

    from django_graphile_worker.worker.execution.coroutines.coroutine_run import CoroutineRun

    class StopperEvents(Protocol):
        """What a stopper needs from its worker, and reports to it."""

        def is_running(self, run: JobRun, /) -> bool:
            """Return True until the run has ended."""

        def set_abort(self, run: JobRun, /) -> None:
            """Set ``helpers.abort`` of the run."""

        def stop_coroutine(self, coroutine_run: CoroutineRun, /) -> None:
            """Cancel a coroutine on its event loop."""

        def leave_coroutine(self, coroutine_run: CoroutineRun, /) -> None:
            """End the wait of a thread for a coroutine that does not stop."""

        def ended_without_thread(self, run: JobRun, thread_id: int, /) -> None:
            """Release a run whose thread does not stop, and replace the thread."""


logger = logging.getLogger("django_graphile_worker.worker")

# Seconds between two steps. A task may catch the exception, or begin another query.
INTERVAL = 0.04
# Code that holds a lock of the whole process. An exception there could leave the lock locked.
UNSAFE_PLACES = (*OWN_FOLDERS, logging.__file__, IMPORT_SYSTEM)


class Stopper:
    """The stop of one run, on a thread of its own: a server that does not answer delays no other stop."""

    def __init__(
        self,
        run: JobRun,
        stopping: StopOfRun,
        *,
        grace: float,
        events: StopperEvents,
        on_end: Callable[[JobRun], object] = lambda run: None,
    ) -> None:
        self._run = run
        self._stopping = stopping
        self._grace = grace
        self._events = events
        # Called when the run has ended: an exception that this stopper raised may have kept the thread of the run from
        # ending its time limit.
        self._on_end = on_end
        self._has_waited_for_query = False
        self._begun = 0.0

    def start(self) -> None:
        name = f"graphile-worker-stop-{self._run.claim.id}"
        threading.Thread(target=self._main, name=name, daemon=True).start()

    def _main(self) -> None:
        try:
            self.stop()
        except BaseException:
            logger.exception("Job %s could not be stopped.", self._run.claim.id)
        finally:
            self._on_end(self._run)
            # Receivers of signals may have opened connections on this thread.
            connections.close_all()

    def stop(self, wait: Callable[[float], object] = lambda seconds: threading.Event().wait(seconds)) -> None:
        """Stop the run. Returns when it has ended, with or without its thread."""
        begun = self._begun = monotonic()
        self._events.set_abort(self._run)
        while self._events.is_running(self._run):
            elapsed = monotonic() - begun
            thread_id = self._step(elapsed)
            if thread_id is not None:
                self._events.ended_without_thread(self._run, thread_id)
                break
            wait(INTERVAL if elapsed > self._grace else min(INTERVAL, self._grace - elapsed))

    def _step(self, elapsed: float) -> int | None:
        """Do one step, if the task runs; return the id of its thread if the run has ended without it."""
        with self._stopping.step() as is_possible:
            position = position_of(self._run) if is_possible and not self._run.is_ending else None
            if position is None:
                return None
            if not self._stopping.stack_text:
                self._stopping.stack_text = stack_text(position)
            if elapsed >= self._grace:
                self._leave(position)
                return position.thread_id
            self._interrupt(position, elapsed)
        return None

    def _leave(self, position: Position) -> None:
        """Have the run end without its thread. The thread ends as soon as the task does."""
        self._stopping.is_without_thread = True
        queries.cut_connections(position.thread_id)
        coroutine_run = position.coroutine_run
        if coroutine_run is not None:
            self._events.leave_coroutine(coroutine_run)

    def _interrupt(self, position: Position, elapsed: float) -> None:
        has_cancelled = queries.cancel_queries(position.thread_id)
        if has_cancelled and elapsed >= self._grace / 2:
            queries.cut_queries(position.thread_id)
        if has_cancelled and not self._has_waited_for_query:
            # The driver must read the answer of the server first: then the connection can be used by the next job.
            self._has_waited_for_query = True
            return
        # The requests to the server took time.
        now = position_of(self._run) if has_cancelled else position
        if now is None:
            return
        coroutine_run = now.coroutine_run
        if coroutine_run is not None:
            self._events.stop_coroutine(coroutine_run)
        elif is_safe(now) and (self._is_late or not now.is_importing_or_connecting):
            self._stopping.raise_in(now.thread_id)

    @property
    def _is_late(self) -> bool:
        return monotonic() - self._begun >= self._grace / 2


def is_safe(position: Position) -> bool:
    """Return True if an exception may be raised at this position."""
    return not position.frame.f_code.co_filename.startswith(UNSAFE_PLACES)
