"""The deadlines of runs: one thread waits for the next of them."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from time import monotonic

from django_graphile_worker.worker.execution.job_run import JobRun

logger = logging.getLogger("django_graphile_worker.worker")

# Seconds until the next check after a check that failed.
RETRY_DELAY = 0.5


class Deadlines:
    """The runs that have a time limit. The thread starts with the first of them."""

    def __init__(
        self,
        on_deadline: Callable[[JobRun, float], None],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        # Called with the run and its time limit.
        self._on_deadline = on_deadline
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
        """Report the runs that are past their deadline; return the seconds until the next deadline."""
        now, following = self._clock(), math.inf
        for run, seconds in list(self._limits.items()):
            # A run that stops already needs no other stop.
            if run.deadline is None or run.stopping is not None:
                continue
            if run.deadline <= now:
                self._on_deadline(run, seconds)
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
