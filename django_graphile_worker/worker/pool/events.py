"""What the pool calls, on the threads that run jobs."""

from __future__ import annotations

from typing import Protocol

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import Outcome


class PoolEvents(Protocol):
    """What the pool calls, on the threads that run jobs. The pool reads each method once, when it is made."""

    def run(self, claim: Claim, /) -> Outcome:
        """Run a job."""

    def may_begin(self, claim: Claim, /) -> bool:
        """Return True if this worker certainly still holds the claim."""

    def refuse(self, claim: Claim, /) -> Outcome:
        """Return the outcome of a job that may not begin."""

    def on_outcome(self, outcome: Outcome, /) -> None:
        """Take the outcome of a job that a slot has run, or that may not begin."""

    def on_queue_done(self, queue: HeldQueue, /) -> None:
        """Take a queue whose work unit is over."""

    def on_wants_jobs(self) -> None:
        """Fetch jobs: the line is down to ``low_water``. Called once until ``wants_jobs`` is set to False."""

    def on_thread_end(self) -> None:
        """Clean up: the calling thread ends."""
