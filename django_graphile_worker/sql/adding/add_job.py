"""Add one job, with a key or without; ``add_jobs`` adds many with few statements."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from django_graphile_worker.job_options import JobKeyMode
from django_graphile_worker.jobs import Job, JobSpec
from django_graphile_worker.payloads import decode, decode_leniently
from django_graphile_worker.sql.adding.specs import new_job, not_inserted
from django_graphile_worker.sql.adding.unique_jobs import add_unique_jobs
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.function_calls import MOMENT, call_statements, moment
from django_graphile_worker.sql.jobs import JOB_COLUMNS, job_from, jobs_from
from django_graphile_worker.sql.parked_jobs import is_infinite, with_true_times
from django_graphile_worker.sql.schema import statement

if TYPE_CHECKING:
    from django_graphile_worker.sql.cursor import Cursor


def added_columns(now: str) -> str:
    """Return the columns whose values the database decides when it adds a job.

    The payload is among them, because an array may have been appended to the payload of a waiting job. Reading a time
    takes Python longest, and most times are the time of the transaction: these are returned as null.
    """
    times = [f"nullif({readable(column)}, now())" for column in ("job.run_at", "job.created_at", "job.updated_at")]
    return f"""
        {now}, job.id, job.priority, job.attempts, job.max_attempts, job.revision, {", ".join(times)},
        case when job.key is not null then job.payload::text end, job.key"""


class Added(NamedTuple):
    """A row of ``added_columns``."""

    now: datetime
    id: int | None
    priority: int
    attempts: int
    max_attempts: int
    revision: int
    run_at: datetime | None
    created_at: datetime | None
    updated_at: datetime | None
    payload: str | None
    key: str | None


WIDTH = len(Added._fields)

_ARGUMENTS = f", %s::json, %s::text, {MOMENT}, %s::int, %s::text, %s::int, %s::text[], %s::text"

ADD_JOB = call_statements("add_job", added_columns("now()"), "add_job", first="%s::text", rest=_ARGUMENTS)

# The same for a job without a key and without a time, which is the usual one. PostgreSQL parses and plans the statement
# for every call, so it is as short as possible. All arguments are given, because PostgreSQL would read the text of the
# defaults otherwise, and none has a type: there is one function of this name.
ADD_JOB_NOW = """/* gw:add_job */
    select (:SCHEMA.add_job(%s, %s, %s, null, %s, null, %s, %s, null)).id, now()"""


def add_job(cursor: Cursor, spec: JobSpec, payload: str, *, schema: str, notify: bool = True) -> Job:
    """Add one job; ``payload`` is the payload of the spec as JSON text."""
    if spec.unique is not None:
        return add_unique_jobs(cursor, [(spec, payload)], schema=schema, notify=notify)[0]
    if spec.job_key is None and spec.run_at is None and notify:
        return _add_now(cursor, spec, payload, schema=schema)
    if spec.job_key_mode is JobKeyMode.UNSAFE_DEDUPE:
        return _add_unless_known(cursor, spec, payload, schema=schema, notify=notify)
    cursor.execute(statement(ADD_JOB[notify], schema), _parameters(spec, payload))
    row = Added._make(cursor.fetchone()[:WIDTH])
    _require(row.id, schema)
    job = added_job(spec, payload, row, row.now)
    return with_true_times(cursor, [job], schema=schema)[0] if row.run_at and is_infinite(row.run_at) else job


def _add_now(cursor: Cursor, spec: JobSpec, payload: str, *, schema: str) -> Job:
    flags = list(spec.flags) if spec.flags else None
    parameters = (spec.identifier, payload, spec.queue_name, spec.max_attempts, spec.priority, flags)
    cursor.execute(statement(ADD_JOB_NOW, schema), parameters)
    job_id, now = cursor.fetchone()
    _require(job_id, schema)
    return new_job(spec, payload, job_id, now, now)


# The place of the revision in JOB_COLUMNS. It is zero until a job with the same key is added.
_REVISION = 14
# A role that may only add jobs cannot read the names of a job that existed before.
_CAN_READ_NAMES = "has_table_privilege(':SCHEMA._private_tasks'::regclass, 'select')"
_CAN_READ_NAMES_PLACE = _REVISION + 2

ADD_JOB_UNLESS_KNOWN = call_statements(
    "add_job", f"{JOB_COLUMNS}, {_CAN_READ_NAMES}", "add_job", first="%s::text", rest=_ARGUMENTS
)


def _add_unless_known(cursor: Cursor, spec: JobSpec, payload: str, *, schema: str, notify: bool) -> Job:
    cursor.execute(statement(ADD_JOB_UNLESS_KNOWN[notify], schema), _parameters(spec, payload))
    row = cursor.fetchone()
    _require(row[0], schema)
    if row[_REVISION] > 0 and row[_CAN_READ_NAMES_PLACE]:
        return jobs_from(cursor, [row], schema=schema)[0].as_existing()
    job = job_from(row, {("task", row[1]): spec.identifier, ("queue", row[2]): spec.queue_name or ""})
    return job.as_existing() if job.revision > 0 else job


def _parameters(spec: JobSpec, payload: str) -> tuple[Any, ...]:
    flags = None if spec.flags is None else list(spec.flags)
    mode = "replace" if spec.job_key_mode is None else spec.job_key_mode.value
    return (
        spec.identifier,
        payload,
        spec.queue_name,
        *moment(spec.run_at),
        spec.max_attempts,
        spec.job_key,
        spec.priority,
        flags,
        mode,
    )


def added_job(spec: JobSpec, payload: str, row: Added, now: datetime) -> Job:
    """Return the job that was added for a spec, with the values that the database set."""
    return Job(
        id=row.id,  # type: ignore[arg-type]  # the caller has checked it
        task_identifier=spec.identifier,
        payload=decode(payload) if row.payload is None else decode_leniently(row.payload),
        queue_name=spec.queue_name,
        priority=row.priority,
        run_at=row.run_at or now,
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        last_error=None,
        created_at=row.created_at or now,
        updated_at=row.updated_at or now,
        key=spec.job_key,
        locked_at=None,
        locked_by=None,
        revision=row.revision,
        flags=frozenset(spec.flags or ()),
    )


def _require(job_id: int | None, schema: str) -> None:
    if job_id is None:
        raise not_inserted(schema)
