"""A job queue for Django in your own PostgreSQL, with the database schema of graphile-worker."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Abort",
    "Attempt",
    "BatchFailure",
    "BreakingMigrationError",
    "CancelResult",
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
    "JobCancelledError",
    "JobExpiredError",
    "JobFailedError",
    "JobKeyMode",
    "JobSpec",
    "LeftoverStateError",
    "Limit",
    "LimitedUntil",
    "LostClaimError",
    "Pause",
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
    "TaskCancelled",
    "TaskStopped",
    "TaskTimeout",
    "UncommittedJobError",
    "Unique",
    "UnknownQueueError",
    "UnknownResultError",
    "UnknownTaskError",
    "Worker",
    "WorkerDiedError",
    "aadd_job",
    "aadd_jobs",
    "acancel_by_key",
    "acancel_jobs",
    "acleanup",
    "acomplete_jobs",
    "add_job",
    "add_jobs",
    "aforce_unlock_workers",
    "aget_job",
    "apause",
    "apauses",
    "apermanently_fail_jobs",
    "aremove_job",
    "areschedule_jobs",
    "aresult",
    "aresume",
    "aretry_jobs",
    "arun_next",
    "arun_now",
    "await_for_result",
    "cancel_by_key",
    "cancel_jobs",
    "cleanup",
    "complete_jobs",
    "current_job",
    "force_unlock_workers",
    "get_job",
    "parse_cron_items",
    "parse_crontab",
    "pause",
    "pauses",
    "permanently_fail_jobs",
    "progress_token",
    "remove_job",
    "reschedule_jobs",
    "result",
    "resume",
    "retry_jobs",
    "run_next",
    "run_now",
    "run_once",
    "run_worker",
    "task",
    "wait_for_result",
]

# The probe of a container runs every few seconds: it must not load Django, and needs none of these names.
if "django_graphile_worker.probe" not in sys.orig_argv:
    from django_graphile_worker.api import (
        CancelResult,
        CleanupResult,
        aadd_job,
        aadd_jobs,
        acancel_by_key,
        acancel_jobs,
        acleanup,
        acomplete_jobs,
        add_job,
        add_jobs,
        aforce_unlock_workers,
        aget_job,
        apause,
        apauses,
        apermanently_fail_jobs,
        aremove_job,
        areschedule_jobs,
        aresume,
        aretry_jobs,
        arun_next,
        arun_now,
        cancel_by_key,
        cancel_jobs,
        cleanup,
        complete_jobs,
        force_unlock_workers,
        get_job,
        pause,
        pauses,
        permanently_fail_jobs,
        remove_job,
        reschedule_jobs,
        resume,
        retry_jobs,
        run_next,
        run_now,
    )
    from django_graphile_worker.crontab import CronItem, parse_cron_items, parse_crontab
    from django_graphile_worker.current import current_job
    from django_graphile_worker.exceptions import (
        BatchFailure,
        BreakingMigrationError,
        ConfigurationError,
        CrontabError,
        FailedByOperatorError,
        GraphileWorkerError,
        InvalidJobError,
        InvalidTypeError,
        JobCancelledError,
        JobExpiredError,
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
        TaskCancelled,
        TaskStopped,
        TaskTimeout,
        UncommittedJobError,
        UnknownQueueError,
        UnknownResultError,
        UnknownTaskError,
        WorkerDiedError,
    )
    from django_graphile_worker.job_options import JobKeyMode, Unique
    from django_graphile_worker.jobs import Job, JobSpec, RemovedJob
    from django_graphile_worker.limits import Limit
    from django_graphile_worker.registry import Task, task
    from django_graphile_worker.sql.control import Pause
    from django_graphile_worker.sql.progress import Progress
    from django_graphile_worker.worker.execution.helpers import Abort, Helpers
    from django_graphile_worker.worker.stop_request import StopRequest

    try:
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
    except ImportError:
        # Without psycopg 3 the system check graphile_worker.E006 says how to install it.
        if sys.modules.get("psycopg"):
            raise

if TYPE_CHECKING:
    from django_graphile_worker.worker.entrypoints import Worker, run_once, run_worker


def __getattr__(name: str) -> Any:
    """Import the functions that run a worker when they are first used."""
    if name not in ("Worker", "run_once", "run_worker"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Late import: the parts of a worker are half of the package's start, and a web process mostly runs no worker.
    from django_graphile_worker.worker import entrypoints

    return globals().setdefault(name, getattr(entrypoints, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
