"""A job queue for Django in your own PostgreSQL, speaking graphile-worker's schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from django_graphile_worker.worker.context import Helpers
    from django_graphile_worker.worker.library import Worker, run_once, run_worker

__version__ = "0.1.0"

__all__ = [
    "CleanupResult",
    "CronItem",
    "CrontabError",
    "GraphileWorkerError",
    "Helpers",
    "InvalidJobError",
    "Job",
    "JobKeyMode",
    "JobSpec",
    "PayloadError",
    "PermanentFailure",
    "RetryLater",
    "SchemaError",
    "Task",
    "Worker",
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
    "run_once",
    "run_worker",
    "task",
]

# A web process adds jobs and never runs one: it need not load the worker.
_OF_THE_WORKER = {
    "Helpers": "django_graphile_worker.worker.context",
    "Worker": "django_graphile_worker.worker.library",
    "run_once": "django_graphile_worker.worker.library",
    "run_worker": "django_graphile_worker.worker.library",
}


def __getattr__(name: str) -> Any:
    if name not in _OF_THE_WORKER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_OF_THE_WORKER[name]), name)
