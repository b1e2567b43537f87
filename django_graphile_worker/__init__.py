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
        JobFailedError,
        LeftoverStateError,
        LimitedUntil,
        LostClaimError,
        PayloadError,
        PermanentFailure,
        ReadOnlyModelError,
        ResultError,
        ResultNotReadyError,
        ResultTimeoutError,
        RetryLater,
        SchemaError,
        UncommittedJobError,
        UnknownResultError,
        UnknownTaskError,
        WorkerDiedError,
    )
    from django_graphile_worker.job_options import JobKeyMode
    from django_graphile_worker.jobs import Job, JobSpec, RemovedJob
    from django_graphile_worker.limits.limit import Limit
    from django_graphile_worker.progress import Progress
    from django_graphile_worker.registry import Task, task
    from django_graphile_worker.results import (
        Attempt,
        Result,
        ResultStatus,
        aresult,
        await_for_result,
        progress_token,
        result,
        wait_for_result,
    )
    from django_graphile_worker.worker.entrypoints import Worker, run_once, run_worker
    from django_graphile_worker.worker.execution.abort import Abort
    from django_graphile_worker.worker.execution.task_helpers import Helpers
    from django_graphile_worker.worker.stop_request import StopRequest

__version__ = "0.1.0"

__all__ = [
    "Abort",
    "Attempt",
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
    "JobFailedError",
    "JobKeyMode",
    "JobSpec",
    "LeftoverStateError",
    "Limit",
    "LimitedUntil",
    "LostClaimError",
    "PayloadError",
    "PermanentFailure",
    "Progress",
    "ReadOnlyModelError",
    "RemovedJob",
    "Result",
    "ResultError",
    "ResultNotReadyError",
    "ResultStatus",
    "ResultTimeoutError",
    "RetryLater",
    "SchemaError",
    "StopRequest",
    "Task",
    "UncommittedJobError",
    "UnknownResultError",
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
    "aresult",
    "await_for_result",
    "cleanup",
    "complete_jobs",
    "force_unlock_workers",
    "get_job",
    "parse_cron_items",
    "parse_crontab",
    "permanently_fail_jobs",
    "progress_token",
    "remove_job",
    "reschedule_jobs",
    "result",
    "run_once",
    "run_worker",
    "task",
    "wait_for_result",
]

# The module of each public name. A module is loaded when one of its names is first used: a web process never runs a
# job, a worker need not add jobs, and most projects have no crontab. Loading all of them takes 50 ms.
_HOMES = {
    "Abort": "worker.execution.abort",
    "Attempt": "results",
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
    "JobFailedError": "exceptions",
    "JobKeyMode": "job_options",
    "JobSpec": "jobs",
    "LeftoverStateError": "exceptions",
    "Limit": "limits.limit",
    "LimitedUntil": "exceptions",
    "LostClaimError": "exceptions",
    "PayloadError": "exceptions",
    "PermanentFailure": "exceptions",
    "Progress": "progress",
    "ReadOnlyModelError": "exceptions",
    "RemovedJob": "jobs",
    "Result": "results",
    "ResultError": "exceptions",
    "ResultNotReadyError": "exceptions",
    "ResultStatus": "results",
    "ResultTimeoutError": "exceptions",
    "RetryLater": "exceptions",
    "SchemaError": "exceptions",
    "StopRequest": "worker.stop_request",
    "Task": "registry",
    "UncommittedJobError": "exceptions",
    "UnknownResultError": "exceptions",
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
    "aresult": "results",
    "await_for_result": "results",
    "cleanup": "api",
    "complete_jobs": "api",
    "force_unlock_workers": "api",
    "get_job": "api",
    "parse_cron_items": "crontab",
    "parse_crontab": "crontab",
    "permanently_fail_jobs": "api",
    "progress_token": "results",
    "remove_job": "api",
    "reschedule_jobs": "api",
    "result": "results",
    "run_once": "worker.entrypoints",
    "run_worker": "worker.entrypoints",
    "task": "registry",
    "wait_for_result": "results",
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
