"""A job queue for Django in your own PostgreSQL, with the database schema of graphile-worker."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_graphile_worker.api import (
        CleanupResult,
        aadd_job,
        aadd_jobs,
        acleanup,
        acomplete_jobs,
        add_job,
        add_jobs,
        aforce_unlock_workers,
        aget_job,
        apermanently_fail_jobs,
        aremove_job,
        areschedule_jobs,
        cleanup,
        complete_jobs,
        force_unlock_workers,
        get_job,
        permanently_fail_jobs,
        remove_job,
        reschedule_jobs,
    )
    from django_graphile_worker.crontab import CronItem, parse_cron_items, parse_crontab
    from django_graphile_worker.exceptions import (
        BatchFailure,
        BreakingMigrationError,
        ConfigurationError,
        CrontabError,
        FailedByOperatorError,
        GraphileWorkerError,
        InvalidJobError,
        InvalidTypeError,
        LeftoverStateError,
        LostClaimError,
        PayloadError,
        PermanentFailure,
        ReadOnlyModelError,
        ResultError,
        RetryLater,
        SchemaError,
        UnknownTaskError,
        WorkerDiedError,
    )
    from django_graphile_worker.job_options import JobKeyMode
    from django_graphile_worker.jobs import Job, JobSpec, RemovedJob
    from django_graphile_worker.registry import Task, task
    from django_graphile_worker.worker.entrypoints import Worker, run_once, run_worker
    from django_graphile_worker.worker.execution.abort import Abort
    from django_graphile_worker.worker.execution.task_helpers import Helpers
    from django_graphile_worker.worker.stop_request import StopRequest

__version__ = "0.1.0"

__all__ = [
    "Abort",
    "BatchFailure",
    "BreakingMigrationError",
    "CleanupResult",
    "ConfigurationError",
    "CronItem",
    "CrontabError",
    "FailedByOperatorError",
    "GraphileWorkerError",
    "Helpers",
    "InvalidJobError",
    "InvalidTypeError",
    "Job",
    "JobKeyMode",
    "JobSpec",
    "LeftoverStateError",
    "LostClaimError",
    "PayloadError",
    "PermanentFailure",
    "ReadOnlyModelError",
    "RemovedJob",
    "ResultError",
    "RetryLater",
    "SchemaError",
    "StopRequest",
    "Task",
    "UnknownTaskError",
    "Worker",
    "WorkerDiedError",
    "aadd_job",
    "aadd_jobs",
    "acleanup",
    "acomplete_jobs",
    "add_job",
    "add_jobs",
    "aforce_unlock_workers",
    "aget_job",
    "apermanently_fail_jobs",
    "aremove_job",
    "areschedule_jobs",
    "cleanup",
    "complete_jobs",
    "force_unlock_workers",
    "get_job",
    "parse_cron_items",
    "parse_crontab",
    "permanently_fail_jobs",
    "remove_job",
    "reschedule_jobs",
    "run_once",
    "run_worker",
    "task",
]

# The module of each public name. A module is loaded when one of its names is first used: a web process never runs a
# job, a worker need not add jobs, and most projects have no crontab. Loading all of them takes 50 ms.
_HOMES = {
    "Abort": "worker.execution.abort",
    "BatchFailure": "exceptions",
    "BreakingMigrationError": "exceptions",
    "CleanupResult": "api",
    "ConfigurationError": "exceptions",
    "CronItem": "crontab",
    "CrontabError": "exceptions",
    "FailedByOperatorError": "exceptions",
    "GraphileWorkerError": "exceptions",
    "Helpers": "worker.execution.task_helpers",
    "InvalidJobError": "exceptions",
    "InvalidTypeError": "exceptions",
    "Job": "jobs",
    "JobKeyMode": "job_options",
    "JobSpec": "jobs",
    "LeftoverStateError": "exceptions",
    "LostClaimError": "exceptions",
    "PayloadError": "exceptions",
    "PermanentFailure": "exceptions",
    "ReadOnlyModelError": "exceptions",
    "RemovedJob": "jobs",
    "ResultError": "exceptions",
    "RetryLater": "exceptions",
    "SchemaError": "exceptions",
    "StopRequest": "worker.stop_request",
    "Task": "registry",
    "UnknownTaskError": "exceptions",
    "Worker": "worker.entrypoints",
    "WorkerDiedError": "exceptions",
    "aadd_job": "api",
    "aadd_jobs": "api",
    "acleanup": "api",
    "acomplete_jobs": "api",
    "add_job": "api",
    "add_jobs": "api",
    "aforce_unlock_workers": "api",
    "aget_job": "api",
    "apermanently_fail_jobs": "api",
    "aremove_job": "api",
    "areschedule_jobs": "api",
    "cleanup": "api",
    "complete_jobs": "api",
    "force_unlock_workers": "api",
    "get_job": "api",
    "parse_cron_items": "crontab",
    "parse_crontab": "crontab",
    "permanently_fail_jobs": "api",
    "remove_job": "api",
    "reschedule_jobs": "api",
    "run_once": "worker.entrypoints",
    "run_worker": "worker.entrypoints",
    "task": "registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    # Python calls __getattr__() only for names that the module does not have: the next access is a plain lookup.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
