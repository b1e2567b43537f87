"""What the pool calls, on the threads that run jobs."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Protocol

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import Outcome


class PoolEvents(Protocol):
    """What the pool calls, on the threads that run jobs. The pool reads each method once, when it is made."""

    @property
    def coroutine_tasks(self) -> Container[int]:
        """The ids of tasks whose jobs need no thread while they run: ``start_job()`` starts them."""

    def run(self, claim: Claim, /) -> Outcome:
        """Run a job."""

    def start_job(self, claim: Claim, /) -> Outcome | None:
        """Start a job without a thread and return None; return the outcome of a job that could not start.

        Each job that was started is passed to ``SlotPool.coroutines`` once.
        """

    def resume_job(self, run: Any, /) -> Outcome:
        """Wait on this thread for the end of a job that was started."""

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
