"""What ``run_jobs()`` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django_graphile_worker.jobs import Job
from django_graphile_worker.worker.outcomes import Expired, Failed, Interrupted, Outcome


@dataclass(frozen=True, slots=True)
class RanJob:
    """A run of a job: the job as it was claimed, and how the run ended."""

    job: Job
    # "succeeded", "failed" (another attempt follows), "permanently failed", "expired", "cancelled" or "interrupted".
    outcome: str
    # What the task returned.
    result: Any = None
    # What the task raised.
    error: BaseException | None = None
    # Seconds until the next attempt.
    retry_in: float | None = None

    @property
    def task_identifier(self) -> str:
        return self.job.task_identifier

    @property
    def payload(self) -> Any:
        return self.job.payload

    @property
    def succeeded(self) -> bool:
        return self.outcome == "succeeded"

    def __repr__(self) -> str:
        end = "" if self.error is None else f" with {self.error!r}"
        return f"<{self.task_identifier} #{self.job.id} {self.outcome}{end}, payload {self.payload!r}>"


def outcome_name(outcome: Outcome, retry_in: float | None) -> str:
    """Return the word for an outcome."""
    if isinstance(outcome, Expired):
        return "expired"
    if isinstance(outcome, Interrupted):
        return "interrupted"
    if isinstance(outcome, Failed):
        return "permanently failed" if retry_in is None else "failed"
    return "succeeded"
