"""The id of the job that a caller means."""

from __future__ import annotations

from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.job_options import whole_number
from django_graphile_worker.jobs import Job

LARGEST_ID = 2**63 - 1


def job_id_of(job_or_id: object) -> int:
    """Return the id of a job, or the id itself; raise for anything else."""
    if isinstance(job_or_id, Job):
        return job_or_id.id
    if isinstance(job_or_id, int) and not isinstance(job_or_id, bool):
        return whole_number("job_or_id", job_or_id, 1, LARGEST_ID)
    got = f"{job_or_id!r} ({type(job_or_id).__name__})"
    raise InvalidTypeError(f"job_or_id: expected a Job, or the id of a job (int), got {got}.")
