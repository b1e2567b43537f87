"""The running jobs that are to stop, and the claimed jobs that must not begin."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.job_stop import Stop
from django_graphile_worker.worker.outcomes import Cancelled, Outcome

if TYPE_CHECKING:
    from typing import Protocol

    class StopEvents(Protocol):
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

__all__ = ["Stop", "Stops"]


class Stops:
    """The requests to stop runs of this worker.

    ``request()`` may be called on any thread, and more than once for a claim. A claim that has begun is stopped, a
    claim that has not begun never begins, and a request for a claim that has ended changes nothing.
    """

    def __init__(self, events: StopEvents) -> None:
        self._events = events
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
        run = self._find(job_id, token)
        if run is not None:
            with self._lock:
                self._unbegun.pop((job_id, token), None)
            self.stop_run(run, stop)

    def stop_run(self, run: JobRun, stop: Stop) -> None:
        """Stop a run."""

    def refuse(self, claim: Claim) -> Outcome | None:
        """Return the outcome of a claim that a request keeps from beginning; None if no request concerns it."""
        with self._lock:
            requested = self._unbegun.pop((claim.id, claim.token), None)
            self._forget_old()
        return None if requested is None else Cancelled(claim, 0.0, requested[0], has_begun=False)

    def _may_begin(self, claim: Claim) -> bool:
        return (claim.id, claim.token) not in self._unbegun and self._events.may_begin(claim)

    def _find(self, job_id: int, token: str) -> JobRun | None:
        for run in self._events.running():
            if run.claim.id == job_id and run.claim.token == token:
                return run
        return None

    def _forget_old(self) -> None:
        """Forget requests that are too old; check no job any more if no request is left. Called under the lock."""
        now = monotonic()
        for key, (_, until) in list(self._unbegun.items()):
            if until < now:
                del self._unbegun[key]
        if not self._unbegun:
            self._events.check_begin(self._events.may_begin)
