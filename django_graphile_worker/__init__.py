"""A job queue for Django in your own PostgreSQL, speaking graphile-worker's schema."""

from __future__ import annotations

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
        GraphileWorkerError,
        InvalidJobError,
        InvalidTypeError,
        LeftoverStateError,
        LostClaimError,
        PayloadError,
        PermanentFailure,
        ReadOnlyModelError,
        RetryLater,
        SchemaError,
        UnknownTaskError,
        WorkerDiedError,
    )
    from django_graphile_worker.jobs import Job, JobKeyMode, JobSpec, RemovedJob
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

# Where the names live, the lighter first. Each module is loaded when a name of it is first used: a web process
# never runs a job, a worker need not add one, and most projects have no crontab. Together they take 50 ms.
_HOMES = (
    "registry",
    "jobs",
    "exceptions",
    "api",
    "crontab",
    "worker.execution.task_helpers",
    "worker.stop_request",
    "worker.entrypoints",
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        for home in _HOMES:
            module = import_module(f"{__name__}.{home}")
            if hasattr(module, name):
                globals()[name] = getattr(module, name)
                return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
