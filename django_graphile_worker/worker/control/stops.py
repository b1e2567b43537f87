"""The running jobs that are to stop, and the claimed jobs that must not begin."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.text import readable_duration
from django_graphile_worker.worker.control.deadlines import Deadlines
from django_graphile_worker.worker.control.stopper import Stopper
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.execution.stops.stop_of_run import StopOfRun
from django_graphile_worker.worker.job_stop import Stop
from django_graphile_worker.worker.outcomes import Cancelled, Outcome

if TYPE_CHECKING:
    from typing import Protocol

    from django_graphile_worker.worker.control.stopper import StopperEvents

    class StopEvents(StopperEvents, Protocol):
        """What the stops need from their worker, and report to it."""

        def running(self) -> Iterable[JobRun]:
            """Return the runs of this moment."""

        def may_begin(self, claim: Claim, /) -> bool:
            """Return True if this worker certainly still holds the claim."""

        def check_begin(self, may_begin: Callable[[Claim], bool], /) -> None:
            """Have the pool call this function before each job."""


# Seconds for which a request for a claim that this worker has not begun is kept. The answer to the claim statement may
# still be on its way, and the job may wait for a slot.
KEPT_FOR = 60.0
# Seconds between two looks for a run that begins just now, and how often to look: the thread that runs a job checks
# whether it may begin a moment before the job is among the runs.
LOOK_INTERVAL = 0.02
LOOKS = 50

__all__ = ["Stop", "Stops"]


class Stops:
    """The requests to stop runs of this worker.

    ``request()`` may be called on any thread, and more than once for a claim. A claim that has begun is stopped, a
    claim that has not begun never begins, and a request for a claim that has ended changes nothing.
    """

    def __init__(self, events: StopEvents, *, grace: float) -> None:
        self._events = events
        # Seconds that a task gets to end after the request.
        self._grace = grace
        self.deadlines = Deadlines(self._time_out)
        # How often the thread that looks for runs looks again; 0 if there is no such thread.
        self._looks_left = 0
        self._lock = threading.Lock()
        # By job id and token: the requests for claims that have not begun, and until when they are kept.
        self._unbegun: dict[tuple[int, str], tuple[Stop, float]] = {}

    def request(self, job_id: int, token: str, stop: Stop) -> None:
        """Stop the run of this claim, or keep it from beginning."""
        with self._lock:
            self._forget_old()
            self._unbegun[job_id, token] = stop, monotonic() + KEPT_FOR
            # Before the look at the runs: a claim that begins after the look is refused.
            self._events.check_begin(self._may_begin)
            if not self._stop_begun():
                self._look_again()

    def close(self) -> None:
        """End the thread of the deadlines: the worker has stopped."""
        self.deadlines.close()

    def _time_out(self, run: JobRun, seconds: float) -> None:
        with self._lock:
            limit = readable_duration(seconds)
            self._stop_run(run, Stop(kind="timeout", reason=f"the task ran longer than its time limit of {limit}"))

    def _stop_run(self, run: JobRun, stop: Stop) -> None:
        """Begin to stop a run. Called under the lock."""
        if run.stopping is None:
            run.stopping = StopOfRun(stop)
            # After the assignment: a thread that finds the mark closes the stop.
            run.is_marked = True
            Stopper(run, run.stopping, grace=self._grace, events=self._events, on_end=self.deadlines.end).start()
        elif stop.kind == "cancelled":
            # A job that is cancelled while it is stopped at its deadline is not retried.
            run.stopping.stop = stop

    def _stop_begun(self) -> bool:
        """Stop the runs of all requests whose claims have begun; return False if a request is left. Under the lock."""
        for run in self._events.running():
            requested = self._unbegun.pop((run.claim.id, run.claim.token), None)
            if requested is not None:
                self._stop_run(run, requested[0])
        self._end_check()
        return not self._unbegun

    def _look_again(self) -> None:
        """Look for the runs of the requests that are left, on another thread. Called under the lock."""
        is_looking, self._looks_left = self._looks_left > 0, LOOKS
        if not is_looking:
            threading.Thread(target=self._look, name="graphile-worker-stops", daemon=True).start()

    def _look(self) -> None:
        while True:
            threading.Event().wait(LOOK_INTERVAL)
            with self._lock:
                self._looks_left = 0 if self._stop_begun() else self._looks_left - 1
                if self._looks_left == 0:
                    return

    def refuse(self, claim: Claim) -> Outcome | None:
        """Return the outcome of a claim that a request keeps from beginning; None if no request concerns it."""
        with self._lock:
            requested = self._unbegun.pop((claim.id, claim.token), None)
            self._forget_old()
        return None if requested is None else Cancelled(claim, 0.0, requested[0], has_begun=False)

    def _may_begin(self, claim: Claim) -> bool:
        return (claim.id, claim.token) not in self._unbegun and self._events.may_begin(claim)

    def _forget_old(self) -> None:
        """Forget requests that are too old. Called under the lock."""
        now = monotonic()
        for key, (_, until) in list(self._unbegun.items()):
            if until < now:
                del self._unbegun[key]
        self._end_check()

    def _end_check(self) -> None:
        """Check jobs no more if no request is left for a claim that has not begun. Called under the lock."""
        if not self._unbegun:
            self._events.check_begin(self._events.may_begin)
