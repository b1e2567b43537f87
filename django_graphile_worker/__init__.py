"""A job queue for Django in your own PostgreSQL, speaking graphile-worker's schema."""

from __future__ import annotations

from django_graphile_worker.api import (
    CleanupResult,
    aadd_job,
    aadd_jobs,
    acleanup,
    acomplete_jobs,
    add_job,
    add_jobs,
    aforce_unlock_workers,
    apermanently_fail_jobs,
    aremove_job,
    areschedule_jobs,
    cleanup,
    complete_jobs,
    force_unlock_workers,
    permanently_fail_jobs,
    remove_job,
    reschedule_jobs,
)
from django_graphile_worker.crontab import CronItem, parse_cron_items, parse_crontab
from django_graphile_worker.exceptions import (
    CrontabError,
    GraphileWorkerError,
    InvalidJobError,
    PayloadError,
    PermanentFailure,
    RetryLater,
    SchemaError,
)
from django_graphile_worker.jobs import Job, JobKeyMode, JobSpec
from django_graphile_worker.registry import Task, task

__version__ = "0.1.0"

__all__ = [
    "CleanupResult",
    "CronItem",
    "CrontabError",
    "GraphileWorkerError",
    "InvalidJobError",
    "Job",
    "JobKeyMode",
    "JobSpec",
    "PayloadError",
    "PermanentFailure",
    "RetryLater",
    "SchemaError",
    "Task",
    "aadd_job",
    "aadd_jobs",
    "acleanup",
    "acomplete_jobs",
    "add_job",
    "add_jobs",
    "aforce_unlock_workers",
    "apermanently_fail_jobs",
    "aremove_job",
    "areschedule_jobs",
    "cleanup",
    "complete_jobs",
    "force_unlock_workers",
    "parse_cron_items",
    "parse_crontab",
    "permanently_fail_jobs",
    "remove_job",
    "reschedule_jobs",
    "task",
]
