"""A job queue for Django in your own PostgreSQL, speaking graphile-worker's schema."""

from __future__ import annotations

from django_graphile_worker.exceptions import (
    GraphileWorkerError,
    InvalidJobError,
    PayloadError,
    PermanentFailure,
    RetryLater,
)
from django_graphile_worker.jobs import Job, JobKeyMode, JobSpec
from django_graphile_worker.registry import Task, task

__version__ = "0.1.0"

__all__ = [
    "GraphileWorkerError",
    "InvalidJobError",
    "Job",
    "JobKeyMode",
    "JobSpec",
    "PayloadError",
    "PermanentFailure",
    "RetryLater",
    "Task",
    "task",
]
