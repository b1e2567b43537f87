"""What concerns the start of a job, and its queue after a failure: its flags, and pauses that tasks ask for."""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING

from django_graphile_worker.job_flags import EXPIRY_PREFIX, keep_in
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.execution.job_run import JobRun

if TYPE_CHECKING:
    from django_graphile_worker.worker.outcomes import Expired


def _ignore(claim: Claim) -> None:
    """Do nothing."""


class JobControl:
    """Decides whether a job may still start, and passes on that a task wants its queue to be paused."""

    def __init__(
        self,
        *,
        server_time: Callable[[], float] = time,
        has_expiring_tasks: bool = True,
        on_queue_pause: Callable[[Claim], None] = _ignore,
    ) -> None:
        # The time by the clock of the database, in seconds since 1970.
        self._server_time = server_time
        # Whether the jobs of some task may expire although they have no flags.
        self.has_expiring_tasks = has_expiring_tasks
        # Called with a job whose task wants its queue to be paused, before another job of the queue can begin.
        self.on_queue_pause = on_queue_pause

    def read_flags(self, run: JobRun) -> bool:
        """Note what the flags of a job say about its run; return whether they may say when the job expires."""
        flags_text = run.claim.flags_text or ""
        if keep_in(flags_text) is not None:
            # The run of a schedule is recorded like a result. A task that keeps its results replaces the value.
            run.value_text = "null"
        return EXPIRY_PREFIX in flags_text

    def expired(self, run: JobRun) -> Expired | None:
        """Return the outcome of a job that was not started in time; None if the job may start."""
        # Late import: most jobs have no time by which they must start.
        from django_graphile_worker.worker.execution.expiry import find_expired

        return find_expired(run, self._server_time)
