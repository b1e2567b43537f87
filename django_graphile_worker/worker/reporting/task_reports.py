"""Reports the ends of Django tasks to their framework, once the database has stored them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from django_graphile_worker.jobs import Job
from django_graphile_worker.worker.outcomes import Cancelled, Expired, Failed, Interrupted, Outcome

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker


class TaskReports:
    """The reports of one worker."""

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker

    def released(self, outcomes: Iterable[Outcome]) -> None:
        """Report the outcomes that end their jobs, and forget the others: another attempt follows."""
        task_of = self._worker.directory.task_of
        for outcome in outcomes:
            task = task_of(outcome.claim.task_id)
            if task is None or task.events is None:
                continue
            claim, has_succeeded = outcome.claim, not isinstance(outcome, Failed | Interrupted | Cancelled | Expired)
            if _has_ended(outcome) and task.events.is_end_heard(succeeded=has_succeeded):
                self._call(task.events.finish, claim.id, claim.attempts, claim.payload_text, succeeded=has_succeeded)
            else:
                task.events.forget(claim.id, claim.attempts)

    def claim_lost(self, outcome: Outcome) -> None:
        """Forget a run whose claim was lost: another worker runs the job, or has run it."""
        task = self._worker.directory.task_of(outcome.claim.task_id)
        if task is not None and task.events is not None:
            task.events.forget(outcome.claim.id, outcome.claim.attempts)

    def ended(self, jobs: Iterable[Job]) -> None:
        """Report jobs that failed for good with their dead workers, or that were cancelled while these held them."""
        for job in jobs:
            task = self._worker.directory.tasks.get(job.task_identifier)
            if task is not None and task.events is not None:
                self._call(task.events.finish, job.id, job.attempts, json.dumps(job.payload), succeeded=False)

    def _call(self, function: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Call a function on a thread on which code of the site may run."""
        self._worker.signal_sender.call(function, *args, **kwargs)


def _has_ended(outcome: Outcome) -> bool:
    """Return True if no other attempt follows."""
    if isinstance(outcome, Failed):
        return outcome.retry_in is None
    return not isinstance(outcome, Interrupted)
