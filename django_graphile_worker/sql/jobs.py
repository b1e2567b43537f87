"""Jobs by key or id: read them, remove them, and change them through the schema's functions."""

from __future__ import annotations

from collections.abc import Sequence

from django_graphile_worker.jobs import Job
from django_graphile_worker.payloads import decode_leniently
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.function_calls import recorded_call_statements
from django_graphile_worker.sql.history import HistoryOutcome
from django_graphile_worker.sql.parked_jobs import with_true_times
from django_graphile_worker.sql.result_keeping import NOTHING_KEPT, ResultKeeping
from django_graphile_worker.sql.statements import Cursor, Row, statement
from django_graphile_worker.sql.workers import worker_of

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
