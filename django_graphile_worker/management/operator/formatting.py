"""A job in one line, and as JSON."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

from django_graphile_worker.escaping import shown
from django_graphile_worker.jobs import Job
from django_graphile_worker.management.operator import times


def job_line(job: Job, now: datetime) -> str:
    """``send_receipt #42: run at 2026-05-01 12:00:00 (in 5 m), 0 of 25 attempts used``."""
    parts = [f"run at {times.both(job.run_at, now)}", f"{job.attempts} of {job.max_attempts} attempts used"]
    parts += [f"queue {shown(job.queue_name)}"] if job.queue_name else []
    parts += [f"key {shown(job.key)}"] if job.key else []
    return f"{shown(job.task_identifier)} #{job.id}: {', '.join(parts)}"


def job_as_dict(job: Job) -> dict[str, Any]:
    return dataclasses.asdict(job)


def counted(number: int, noun: str) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
