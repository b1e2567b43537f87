"""Stops runs of jobs, also at their deadlines, and keeps claimed jobs from beginning that must not.

``RunStops`` takes the requests. ``RunStopper`` stops one run, step by step: a request, cancelled queries, an exception,
and at last an end without its thread.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

from django.db import connections
from psycopg.pq import TransactionStatus

from django_graphile_worker.logs.errors import OWN_FOLDERS
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.text import readable_duration
from django_graphile_worker.worker import django_connections
from django_graphile_worker.worker.control.position import IMPORT_SYSTEM, Position, position_of, stack_text
from django_graphile_worker.worker.database.watchdog import cut
from django_graphile_worker.worker.execution.job_run import ActiveRunStop, JobRun
from django_graphile_worker.worker.outcomes import Cancelled, Outcome, RunStop

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

logger = logging.getLogger("django_graphile_worker.worker")

# Seconds for which a request for a claim that this worker has not begun is kept. The answer to the claim statement may
# still be on its way, and the job may wait for a slot.
KEPT_FOR = 60.0
# Seconds between two searches for a run that begins just now, and how many searches: the thread that runs a job checks
# whether it may begin a moment before the job is among the runs.
SEARCH_INTERVAL = 0.02
SEARCHES = 50
# Seconds until the next check of the deadlines after a check that failed.
RETRY_DELAY = 0.5
# Seconds between two steps. A task may catch the exception, or begin another query.
STEP_INTERVAL = 0.04
# Seconds. A server that answers processes the request to cancel in a few milliseconds.
CANCEL_TIMEOUT = 0.2
# Code that holds a lock of the whole process. An exception there could leave the lock locked.
UNSAFE_PLACES = (*OWN_FOLDERS, logging.__file__, IMPORT_SYSTEM)


class RunStops:
    """The requests to stop runs of this worker.

    ``request()`` may be called on any thread, and more than once for a claim. A claim that has begun is stopped, a
    claim that has not begun never begins, and a request for a claim that has ended changes nothing.
    """

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker
        self.deadlines = Deadlines(self)
        # How often the thread that searches for runs searches again; 0 if there is no such thread.
        self._searches_left = 0
        self._lock = threading.Lock()
        # By job id and token: the requests for claims that have not begun, and until when they are kept. The pool asks
        # for each job whether there are any, without the lock.
        self.unbegun: dict[tuple[int, str], tuple[RunStop, float]] = {}

    def request(self, job_id: int, token: str, stop: RunStop) -> None:
        """Stop the run of this claim, or keep it from beginning."""
        with self._lock:
            self._forget_old()
            # Before the look at the runs: a claim that begins after the look is refused.
            self.unbegun[job_id, token] = stop, monotonic() + KEPT_FOR
            if not self._stop_begun():
                self._search_again()

    def is_requested(self, claim: Claim) -> bool:
        """Return True if a request keeps this claim from beginning."""
        return (claim.id, claim.token) in self.unbegun

    def refuse(self, claim: Claim) -> Outcome | None:
        """Return the outcome of a claim that a request keeps from beginning; None if no request concerns it."""
        with self._lock:
            requested = self.unbegun.pop((claim.id, claim.token), None)
            self._forget_old()
        return None if requested is None else Cancelled(claim, 0.0, requested[0], has_begun=False)

    def time_out(self, run: JobRun, seconds: float) -> None:
        """Stop a run that is past its deadline; ``seconds`` is its time limit."""
        with self._lock:
            limit = readable_duration(seconds)
            self._stop_run(run, RunStop(kind="timeout", reason=f"the task ran longer than its time limit of {limit}"))

    def close(self) -> None:
        """End the thread of the deadlines: the worker has stopped."""
        self.deadlines.close()

    def _stop_run(self, run: JobRun, stop: RunStop) -> None:
        """Begin to stop a run. Called under the lock."""
        if run.stopping is None:
            run.stopping = ActiveRunStop(stop)
            # After the assignment: a thread that finds the mark closes the stop.
            run.is_marked = True
            RunStopper(self._worker, run, run.stopping).start()
        elif stop.kind == "cancelled":
            # A job that is cancelled while it is stopped at its deadline is not retried.
            run.stopping.stop = stop

    def _stop_begun(self) -> bool:
        """Stop the runs of all requests whose claims have begun; return False if a request is left. Under the lock."""
        for run in self._worker.executor.runs():
            requested = self.unbegun.pop((run.claim.id, run.claim.token), None)
            if requested is not None:
                self._stop_run(run, requested[0])
        return not self.unbegun

    def _search_again(self) -> None:
        """Look for the runs of the requests that are left, on another thread. Called under the lock."""
        is_searching, self._searches_left = self._searches_left > 0, SEARCHES
        if not is_searching:
            threading.Thread(target=self._search, name="graphile-worker-stops", daemon=True).start()

    def _search(self) -> None:
        while True:
            threading.Event().wait(SEARCH_INTERVAL)
            with self._lock:
                self._searches_left = 0 if self._stop_begun() else self._searches_left - 1
                if self._searches_left == 0:
                    return

    def _forget_old(self) -> None:
        """Forget requests that are too old. Called under the lock."""
        now = monotonic()
        for key, (_, until) in list(self.unbegun.items()):
            if until < now:
                del self.unbegun[key]


class Deadlines:
    """The runs that have a time limit. One thread waits for the next deadline; it starts with the first such run."""

    def __init__(self, stops: RunStops, *, clock: Callable[[], float] = monotonic) -> None:
        self._stops = stops
        self._clock = clock
        # By run: its time limit in seconds. Access to an item needs no lock.
        self._limits: dict[JobRun, float] = {}
        # When the thread wakes up by itself.
        self._wakes_at = -math.inf
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_closed = False

    def begin(self, run: JobRun, seconds: float) -> None:
        """Begin the time limit of a run. Called on the thread of the run."""
        run.deadline = deadline = self._clock() + seconds
        self._limits[run] = seconds
        if self._thread is None:
            self._start()
        # Mostly the thread waits for the deadline of an earlier run, and looks at the others when it wakes up.
        if deadline < self._wakes_at:
            self._woken.set()

    def end(self, run: JobRun) -> None:
        """End the time limit of a run. Calling it again changes nothing."""
        self._limits.pop(run, None)

    def check(self) -> float:
        """Stop the runs that are past their deadline; return the seconds until the next deadline."""
        now, following = self._clock(), math.inf
        for run, seconds in list(self._limits.items()):
            # A run that stops already needs no other stop.
            if run.deadline is None or run.stopping is not None:
                continue
            if run.deadline <= now:
                self._stops.time_out(run, seconds)
            else:
                following = min(following, run.deadline)
        return following - now

    def close(self) -> None:
        """End the thread: the worker has stopped."""
        self._is_closed = True
        self._woken.set()

    def _check_surely(self) -> float:
        try:
            return self.check()
        except Exception:
            # Without this thread no run would have a deadline any more.
            logger.exception("The deadlines of jobs could not be checked.")
            return RETRY_DELAY

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="graphile-worker-deadlines", daemon=True)
                thread.start()
                self._thread = thread

    def _serve(self) -> None:
        while not self._is_closed:
            self._woken.clear()
            # Before the look at the runs: a run that begins after the look wakes the thread if its deadline is earlier
            # than this, and this is later than every deadline.
            self._wakes_at = math.inf
            delay = self._check_surely()
            self._wakes_at = self._clock() + delay
            self._woken.wait(None if math.isinf(delay) else max(delay, 0.0))


class RunStopper:
    """The stop of one run, on a thread of its own: a server that does not answer delays no other stop."""

    def __init__(self, worker: DatabaseWorker, run: JobRun, stopping: ActiveRunStop) -> None:
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
            self._worker.run_stops.deadlines.end(self._run)
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
            wait(STEP_INTERVAL if elapsed > self._grace else min(STEP_INTERVAL, self._grace - elapsed))

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
