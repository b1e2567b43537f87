"""Statements for the tests of projects: read all jobs, and give added jobs the time of a test's clock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django_graphile_worker.jobs import Job
from django_graphile_worker.sql.jobs import JOB_COLUMNS, jobs_from
from django_graphile_worker.sql.statements import Cursor, statement

ALL_JOBS = f"/* gw:all_jobs */ select {JOB_COLUMNS} from :SCHEMA._private_jobs as job order by job.id"


def all_jobs(cursor: Cursor, *, schema: str) -> list[Job]:
    """Return all jobs in the order of their ids, for tests: a queue may have millions."""
    cursor.execute(statement(ALL_JOBS, schema))
    return jobs_from(cursor, cursor.fetchall(), schema=schema)


# A job that replaced a waiting job keeps the time at which that job was added.
STAMP = """/* gw:stamp */
    update only :SCHEMA._private_jobs as job
    set created_at = case when job.revision = 0 then %(now)s::timestamptz else job.created_at end,
        updated_at = %(now)s::timestamptz
    where job.id = any(%(ids)s::bigint[])
    returning job.id, job.created_at, job.updated_at"""


def stamp(
    cursor: Cursor, job_ids: Sequence[int], now: datetime, *, schema: str
) -> dict[int, tuple[datetime, datetime]]:
    """Give added jobs the time of a test's clock; return the times at which each was added and changed."""
    cursor.execute(statement(STAMP, schema), {"ids": list(job_ids), "now": now})
    return {job_id: (created_at, updated_at) for job_id, created_at, updated_at in cursor.fetchall()}
