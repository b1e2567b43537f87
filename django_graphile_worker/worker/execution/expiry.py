"""Whether a job may still start: the time of its own flag, or that of its task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_graphile_worker.job_flags import expiry_in
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.outcomes import Expired


def find_expired(run: JobRun, server_time: Callable[[], float]) -> Expired | None:
    """Return the outcome of a job that was not started in time; None if the job may start."""
    moment = _expires_at(run.claim, run.task)
    return Expired(run.claim, moment) if moment is not None and server_time() > moment else None


def _expires_at(claim: Claim, task: Task[Any, Any] | None) -> float | None:
    """Return when the job of a claim expires, in seconds since 1970; None if it may start at any time.

    Only the first start counts. A job that failed, or whose worker died, has been started.
    """
    if claim.attempts != 1 or claim.last_error is not None:
        return None
    own = None if claim.flags_text is None else expiry_in(claim.flags_text)
    if own is not None:
        return own
    return None if task is None or task.expires is None else claim.run_at_epoch + task.expires
