"""The real jobs as tasks of this package."""

from __future__ import annotations

from typing import Any

from benchmarks.real_jobs.work import WORK
from django_graphile_worker import JobSpec, add_jobs, signals, task

for name, function in WORK.items():
    task(name)(function)

durations: dict[str, float] = {}


def remember(sender: Any, job: Any, duration: float, **more: Any) -> None:
    """Receive a signal, as a project does that counts its jobs."""
    durations[job.task_identifier] = durations.get(job.task_identifier, 0.0) + duration


signals.job_succeeded.connect(remember)


def load(work: str, count: int) -> None:
    add_jobs((JobSpec(work, number) for number in range(1, count + 1)), returning=False)
