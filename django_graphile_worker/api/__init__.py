"""The functions that add jobs, change waiting jobs and delete unused rows.

They use Django's own connection, so each call is part of the transaction around
it: a job exists if and only if that transaction commits. Each function has an
asynchronous variant, whose name begins with ``a``. Start reading with ``add``. The
folder may import ``sql`` and the layers below it, and nothing of ``worker``.
"""

from __future__ import annotations

from django_graphile_worker.api.add import aadd_job, aadd_jobs, add_job, add_jobs
from django_graphile_worker.api.change import (
    CancelResult,
    acancel_by_key,
    acancel_jobs,
    acomplete_jobs,
    aforce_unlock_workers,
    aget_job,
    apermanently_fail_jobs,
    aremove_job,
    areschedule_jobs,
    aretry_jobs,
    arun_next,
    arun_now,
    cancel_by_key,
    cancel_jobs,
    complete_jobs,
    force_unlock_workers,
    get_job,
    permanently_fail_jobs,
    remove_job,
    reschedule_jobs,
    retry_jobs,
    run_next,
    run_now,
)
from django_graphile_worker.api.clean_up import acleanup, cleanup
from django_graphile_worker.api.pausing import apause, apauses, aresume, pause, pauses, resume
from django_graphile_worker.sql.cleanup import CleanupResult

__all__ = [
    "CancelResult",
    "CleanupResult",
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
    "aresume",
    "aretry_jobs",
    "arun_next",
    "arun_now",
    "cancel_by_key",
    "cancel_jobs",
    "cleanup",
    "complete_jobs",
    "force_unlock_workers",
    "get_job",
    "pause",
    "pauses",
    "permanently_fail_jobs",
    "remove_job",
    "reschedule_jobs",
    "resume",
    "retry_jobs",
    "run_next",
    "run_now",
]
