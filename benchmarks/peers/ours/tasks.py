"""The real jobs as tasks of this package."""

from __future__ import annotations

from typing import Any

from benchmarks.real_jobs.shop import work
from django_graphile_worker import JobSpec, add_jobs, signals, task


@task
def orm(payload: int) -> None:
    work.pay_order(payload)


@task
def http(payload: int) -> None:
    work.call_service(payload)


@task
async def http_async(payload: int) -> None:
    await work.call_service_async(payload)


@task
def cpu(payload: int) -> None:
    work.compute(payload)


durations: dict[str, float] = {}


def remember(sender: Any, job: Any, duration: float, **more: Any) -> None:
    """Receive a signal, as a project does that counts its jobs."""
    durations[job.task_identifier] = durations.get(job.task_identifier, 0.0) + duration


signals.job_succeeded.connect(remember)


def load(work: str, count: int) -> None:
    add_jobs((JobSpec(work, number) for number in range(1, count + 1)), returning=False)
