"""Parked jobs: the jobs that wait for a limit.

The run_at of such a job is infinity, so that no claim of ordinary jobs reads it. Its true run_at is in the table of
limited jobs. Every statement that shows jobs to people or to the project reads the true one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import MAXYEAR, datetime
from typing import Any

from django_graphile_worker.jobs import Job
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.statements import Cursor, statement

# For statements that call a row of the table of jobs "job".
JOIN_PARKED = """left join :SCHEMA._private_limited_jobs as parked
    on parked.job_id = job.id and job.run_at = 'infinity'"""
TRUE_RUN_AT = "coalesce(parked.run_at, job.run_at)"
# As an expression, for conditions on few jobs.
TRUE_RUN_AT_OF_JOB = """case when job.run_at = 'infinity' then coalesce((
        select parked.run_at from :SCHEMA._private_limited_jobs as parked where parked.job_id = job.id), job.run_at)
    else job.run_at end"""

# A role that may only add jobs cannot read the table. A statement that names it would fail, so it is asked first.
CAN_READ = """/* gw:can_read_parked */
    select pg_catalog.has_table_privilege(':SCHEMA._private_limited_jobs'::pg_catalog.regclass, 'select')"""

TRUE_TIMES = f"""/* gw:parked_run_at */
    select parked.job_id, {readable("parked.run_at")} from :SCHEMA._private_limited_jobs as parked
    where parked.job_id = any(%s::bigint[])"""


def is_infinite(run_at: datetime) -> bool:
    """Return whether a run_at was read from an infinite one; `job_options.valid_run_at` refuses the year 9999."""
    return run_at.year == MAXYEAR


def true_run_ats(cursor: Cursor, job_ids: Sequence[int], *, schema: str) -> dict[int, Any]:
    """Return the true run_at of those jobs that are parked."""
    cursor.execute(statement(CAN_READ, schema))
    if not job_ids or not cursor.fetchone()[0]:
        return {}
    cursor.execute(statement(TRUE_TIMES, schema), [list(job_ids)])
    return dict(cursor.fetchall())


def with_true_times(cursor: Cursor, jobs: Sequence[Job], *, schema: str) -> list[Job]:
    """Return the jobs; each that is parked has its true run_at. Without such a job, no statement is sent."""
    parked = [job.id for job in jobs if is_infinite(job.run_at)]
    times = true_run_ats(cursor, parked, schema=schema) if parked else {}
    return [replace(job, run_at=times[job.id]) if job.id in times else job for job in jobs]
