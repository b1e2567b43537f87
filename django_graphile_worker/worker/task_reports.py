"""Reports the ends of Django tasks to their framework, once the database has stored them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import Task
from django_graphile_worker.worker.execution import retry
from django_graphile_worker.worker.outcomes import Cancelled, Expired, Failed, Interrupted, Outcome


class TaskReports:
    """The reports of one worker. A worker of a project without Django tasks has none."""

    def __init__(
        self,
        *,
        task_of: Callable[[int], Task[Any, Any] | None],
        tasks: Callable[[], Mapping[str, Task[Any, Any]]],
        call: Callable[..., None],
    ) -> None:
        self._task_of = task_of
        self._tasks = tasks
        # Calls a function on a thread on which code of the site may run.
        self._call = call

    def released(self, outcomes: Iterable[Outcome]) -> None:
        """Report the outcomes that end their jobs, and forget the others: another attempt follows."""
        for outcome in outcomes:
            task = self._task_of(outcome.claim.task_id)
            if task is None or task.events is None:
                continue
            claim, has_succeeded = outcome.claim, not isinstance(outcome, Failed | Interrupted | Cancelled | Expired)
            has_ended = has_succeeded or isinstance(outcome, Cancelled | Expired) or _has_failed(outcome)
            if has_ended and task.events.is_end_heard(succeeded=has_succeeded):
                self._call(task.events.finish, claim.id, claim.attempts, claim.payload_text, succeeded=has_succeeded)
            else:
                task.events.forget(claim.id, claim.attempts)

    def claim_lost(self, outcome: Outcome) -> None:
        """Forget a run whose claim was lost: another worker runs the job, or has run it."""
        task = self._task_of(outcome.claim.task_id)
        if task is not None and task.events is not None:
            task.events.forget(outcome.claim.id, outcome.claim.attempts)

    def ended(self, jobs: Iterable[Job]) -> None:
        """Report jobs that failed for good with their dead workers, or that were cancelled while these held them."""
        for job in jobs:
            task = self._tasks().get(job.task_identifier)
            if task is not None and task.events is not None:
                self._call(task.events.finish, job.id, job.attempts, json.dumps(job.payload), succeeded=False)


def _has_failed(outcome: Outcome) -> bool:
    return isinstance(outcome, Failed) and retry.retry_in(outcome) is None
