"""Stops one run, step by step: a request, cancelled queries, an exception, and at last an end without its thread."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

from django.db import connections
from psycopg.pq import TransactionStatus

from django_graphile_worker.logs.errors import OWN_FOLDERS
from django_graphile_worker.worker import django_connections
from django_graphile_worker.worker.control.position import IMPORT_SYSTEM, Position, position_of, stack_text
from django_graphile_worker.worker.database.watchdog import cut
from django_graphile_worker.worker.execution.job_run import JobRun, StopOfRun

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

logger = logging.getLogger("django_graphile_worker.worker")

# Seconds between two steps. A task may catch the exception, or begin another query.
INTERVAL = 0.04
# Seconds. A server that answers processes the request to cancel in a few milliseconds.
CANCEL_TIMEOUT = 0.2
# Code that holds a lock of the whole process. An exception there could leave the lock locked.
UNSAFE_PLACES = (*OWN_FOLDERS, logging.__file__, IMPORT_SYSTEM)


class Stopper:
    """The stop of one run, on a thread of its own: a server that does not answer delays no other stop."""

    def __init__(self, worker: DatabaseWorker, run: JobRun, stopping: StopOfRun) -> None:
        self._worker = worker
        self._executor = worker.executor
        self._run = run
        self._stopping = stopping
        # Seconds that a task gets to end after the request.
        self._grace = worker.settings.stop_grace
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
            # An exception that was raised here may have kept the thread of the run from ending its time limit.
            self._worker.stops.deadlines.end(self._run)
            # Receivers of signals may have opened connections on this thread.
            connections.close_all()

    def stop(self, wait: Callable[[float], object] = lambda seconds: threading.Event().wait(seconds)) -> None:
        """Stop the run. Returns when it has ended, with or without its thread."""
        begun = self._begun = monotonic()
        self._executor.request_stop(self._run)
        while self._executor.is_running(self._run):
            elapsed = monotonic() - begun
            thread_id = self._step(elapsed)
            if thread_id is not None:
                self._worker.run_ended_without_thread(self._run, thread_id)
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
        cut_connections(position.thread_id)
        coroutine_run = position.coroutine_run
        if coroutine_run is not None:
            self._executor.event_loop.leave(coroutine_run)

    def _interrupt(self, position: Position, elapsed: float) -> None:
        has_cancelled = cancel_queries(position.thread_id)
        if has_cancelled and elapsed >= self._grace / 2:
            cut_queries(position.thread_id)
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
            self._executor.event_loop.stop(coroutine_run)
        elif is_safe(now) and (self._is_late or not now.is_importing_or_connecting):
            self._stopping.raise_in(now.thread_id)

    @property
    def _is_late(self) -> bool:
        return monotonic() - self._begun >= self._grace / 2


def is_safe(position: Position) -> bool:
    """Return True if an exception may be raised at this position."""
    return not position.frame.f_code.co_filename.startswith(UNSAFE_PLACES)


# The queries that a task waits for, on Django's connections of its thread.


def cancel_queries(thread_id: int) -> bool:
    """Cancel on the server the queries that a thread waits for; return True if there were any.

    The server has the request when this function returns, so it concerns no later query of the connection.
    """
    has_cancelled = False
    for connection in _waiting(thread_id):
        has_cancelled = True
        with contextlib.suppress(Exception):
            connection.cancel_safe(timeout=CANCEL_TIMEOUT)
    return has_cancelled


def cut_queries(thread_id: int) -> None:
    """Shut down the connections on which a thread still waits: their server does not react to the request."""
    for connection in _waiting(thread_id):
        cut(connection)


def cut_connections(thread_id: int) -> None:
    """Shut down all connections of a thread, so that the server rolls back its transactions."""
    for watched in django_connections.connections_of(thread_id):
        raw = watched.wrapper.connection
        if getattr(raw, "pgconn", None) is not None:
            cut(raw)


def _waiting(thread_id: int) -> Iterator[Any]:
    for watched in django_connections.connections_of(thread_id):
        raw = watched.wrapper.connection
        if django_connections.transaction_status(watched.wrapper) == TransactionStatus.ACTIVE:
            yield raw
