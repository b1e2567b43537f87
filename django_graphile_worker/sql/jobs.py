"""Jobs by key or id: read them, remove them, change them. First, the conditions and columns that statements share.

The statements that every job needs are functions in the files of ``ddl``, which have their own conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import MAXYEAR, datetime
from typing import Any

from django_graphile_worker.jobs import Job
from django_graphile_worker.payloads import decode_leniently
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.results import NOTHING_KEPT, HistoryOutcome, ResultKeeping
from django_graphile_worker.sql.statements import Cursor, Row, recorded_call_statements, statement
from django_graphile_worker.sql.workers import worker_of

# Conditions that several statements share: each is written here and nowhere else. They refer to a row that the
# statement calls ``job`` or ``worker``. A partial index serves only statements that repeat its condition. So the
# conditions include ``job.attempts > 0`` and ``job.locked_at is null`` even where these follow from the rest: the index
# of failed jobs has both.

# A worker holds the job.
IS_LOCKED = "job.locked_at is not null"
IS_DUE = "job.run_at <= now()"
# The column is_available is true if no worker holds the job and it has attempts left.
IS_READY = f"job.is_available and {IS_DUE}"
# A job that waits for a limit is parked at infinity, see JOIN_PARKED. While there are such jobs, waiting jobs end
# before infinity: a bound that an index can use, as a list must not read all parked jobs.
_END_OF_WAITING = """(select case when exists (select from :SCHEMA._private_limited_jobs)
    then timestamptz '294276-12-31 23:59:59+00' else 'infinity' end)"""
IS_WAITING = f"job.is_available and job.run_at > now() and job.run_at <= {_END_OF_WAITING}"
IS_PARKED = "job.is_available and job.run_at = 'infinity'"
IS_AVAILABLE_IN_QUEUE = "job.is_available and job.job_queue_id is not null"
# The job was tried, and no worker holds it: it failed.
HAS_FAILED = "job.locked_at is null and job.attempts > 0"
IS_RETRYING = f"{HAS_FAILED} and {IS_WAITING}"
IS_PERMANENTLY_FAILED = f"{HAS_FAILED} and not job.is_available"
NOT_TRIED = "job.attempts = 0"

# The worker has registered a heartbeat within the parameter timeout, in seconds.
IS_ALIVE = "worker.last_heartbeat_at >= now() - interval '1 second' * %(timeout)s::float8"

# Parked jobs are the jobs that wait for a limit. The run_at of such a job is infinity, so that no claim of ordinary
# jobs reads it. Its true run_at is in the table of limited jobs. Every statement that shows jobs to people or to the
# project reads the true one. This is for statements that call a row of the table of jobs "job".
JOIN_PARKED = """left join :SCHEMA._private_limited_jobs as parked
    on parked.job_id = job.id and job.run_at = 'infinity'"""
TRUE_RUN_AT = "coalesce(parked.run_at, job.run_at)"
# As an expression, for conditions on few jobs.
TRUE_RUN_AT_OF_JOB = """case when job.run_at = 'infinity' then coalesce((
        select parked.run_at from :SCHEMA._private_limited_jobs as parked where parked.job_id = job.id), job.run_at)
    else job.run_at end"""

# A role that may only add jobs cannot read the table. A statement that names it would fail, so it is asked first.
CAN_READ_PARKED = """/* gw:can_read_parked */
    select pg_catalog.has_table_privilege(':SCHEMA._private_limited_jobs'::pg_catalog.regclass, 'select')"""

TRUE_TIMES = f"""/* gw:parked_run_at */
    select parked.job_id, {readable("parked.run_at")} from :SCHEMA._private_limited_jobs as parked
    where parked.job_id = any(%s::bigint[])"""


def is_infinite(run_at: datetime) -> bool:
    """Return whether a run_at was read from an infinite one; `job_options.valid_run_at` refuses the year 9999."""
    return run_at.year == MAXYEAR


def true_run_ats(cursor: Cursor, job_ids: Sequence[int], *, schema: str) -> dict[int, Any]:
    """Return the true run_at of those jobs that are parked."""
    cursor.execute(statement(CAN_READ_PARKED, schema))
    if not job_ids or not cursor.fetchone()[0]:
        return {}
    cursor.execute(statement(TRUE_TIMES, schema), [list(job_ids)])
    return dict(cursor.fetchall())


def with_true_times(cursor: Cursor, jobs: Sequence[Job], *, schema: str) -> list[Job]:
    """Return the jobs; each that is parked has its true run_at. Without such a job, no statement is sent."""
    parked = [job.id for job in jobs if is_infinite(job.run_at)]
    times = true_run_ats(cursor, parked, schema=schema) if parked else {}
    return [replace(job, run_at=times[job.id]) if job.id in times else job for job in jobs]


JOB_COLUMNS = f"""
    job.id, job.task_id, job.job_queue_id, job.payload::text, job.priority, {readable("job.run_at")},
    job.attempts, job.max_attempts, job.last_error, {readable("job.created_at")}, {readable("job.updated_at")},
    job.key, {readable("job.locked_at")}, job.locked_by, job.revision, job.flags::text"""

# A separate statement: the snapshot of the statement that called a function has neither the names that the function
# inserted nor the changes of a transaction that it waited for.
NAMES = """/* gw:names */
    select 'task', id, identifier from :SCHEMA._private_tasks where id = any(%s::int[])
    union all
    select 'queue', id, queue_name from :SCHEMA._private_job_queues where id = any(%s::int[])"""


def jobs_from(cursor: Cursor, rows: Sequence[Row], *, schema: str) -> list[Job]:
    """Return the jobs of rows of JOB_COLUMNS, without rows of nulls, which a function returns if there is no job."""
    rows = [row for row in rows if row[0] is not None]
    if not rows:
        return []
    task_ids = {row[1] for row in rows}
    queue_ids = {row[2] for row in rows if row[2] is not None}
    cursor.execute(statement(NAMES, schema), [list(task_ids), list(queue_ids)])
    names = {(kind, identity): name for kind, identity, name in cursor.fetchall()}
    return with_true_times(cursor, [job_from(row, names) for row in rows], schema=schema)


def job_from(row: Row, names: dict[tuple[str, int], str]) -> Job:
    """Return the job of a row of JOB_COLUMNS; ``names`` holds the names of its task and queue by kind and id."""
    return Job(
        id=row[0],
        task_identifier=names.get(("task", row[1]), ""),
        queue_name=None if row[2] is None else names.get(("queue", row[2])),
        payload=decode_leniently(row[3]),
        priority=row[4],
        run_at=row[5],
        attempts=row[6],
        max_attempts=row[7],
        last_error=row[8],
        created_at=row[9],
        updated_at=row[10],
        key=row[11],
        locked_at=row[12],
        locked_by=row[13] and worker_of(row[13]),
        revision=row[14],
        flags=flags_from(row[15]),
    )


_FROM_JOBS = f"select {JOB_COLUMNS} from :SCHEMA._private_jobs as job where job."
GET_JOB_BY_ID = f"/* gw:get_job */ {_FROM_JOBS}id = %s::bigint"
GET_JOBS_BY_ID = f"/* gw:get_jobs */ {_FROM_JOBS}id = any(%s::bigint[])"
GET_JOB_BY_KEY = f"/* gw:get_job */ {_FROM_JOBS}key = %s::text"


def get_job(cursor: Cursor, id_or_key: int | str, *, schema: str) -> Job | None:
    """Return the job with this id (an int) or key (a str)."""
    text = GET_JOB_BY_KEY if isinstance(id_or_key, str) else GET_JOB_BY_ID
    cursor.execute(statement(text, schema), [id_or_key])
    return next(iter(jobs_from(cursor, cursor.fetchall(), schema=schema)), None)


def get_jobs(cursor: Cursor, job_ids: Sequence[int], *, schema: str) -> dict[int, Job]:
    """Return those of the jobs that exist, by their ids."""
    cursor.execute(statement(GET_JOBS_BY_ID, schema), [list(job_ids)])
    return {job.id: job for job in jobs_from(cursor, cursor.fetchall(), schema=schema)}


REMOVE_JOB = recorded_call_statements("remove_job", JOB_COLUMNS, "remove_job", first="%(key)s::text")


def remove_job(
    cursor: Cursor, job_key: str, *, schema: str, notify: bool = True, keeping: ResultKeeping = NOTHING_KEPT
) -> Job | None:
    """Remove the job with this key and return it; a running job loses its key and is not tried again."""
    parameters = {"key": job_key, "outcome": HistoryOutcome.REMOVED_BY_OPERATOR, **keeping.parameters()}
    cursor.execute(statement(REMOVE_JOB[notify], schema), parameters)
    return next(iter(jobs_from(cursor, cursor.fetchall(), schema=schema)), None)


COMPLETE_JOBS = recorded_call_statements("complete_jobs", JOB_COLUMNS, "complete_jobs", first="%(ids)s::bigint[]")


def complete_jobs(
    cursor: Cursor, job_ids: Sequence[int], *, schema: str, keeping: ResultKeeping = NOTHING_KEPT
) -> list[Job]:
    """Delete jobs that are not running, as if they had succeeded, and return them."""
    parameters = {"ids": list(job_ids), "outcome": HistoryOutcome.REMOVED_BY_OPERATOR, **keeping.parameters()}
    cursor.execute(statement(COMPLETE_JOBS[True], schema), parameters)
    return jobs_from(cursor, cursor.fetchall(), schema=schema)


# The event is committed with the unlocked jobs.
FORCE_UNLOCK_WORKERS = """/* gw:force_unlock_workers */
    select :SCHEMA.force_unlock_workers(%s::text[]), :SCHEMA._private_add_event(
        'force_unlocked', 1, null, jsonb_build_object('workers', %s::text), %s::text)"""


def force_unlock_workers(cursor: Cursor, worker_ids: Sequence[str], *, schema: str) -> None:
    """Release all locks of workers that are known to be dead."""
    names = list(worker_ids)
    cursor.execute(statement(FORCE_UNLOCK_WORKERS, schema), [names, ", ".join(names)[:1000], names[0]])


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
