"""The statements behind the Python API: adding a job, and changing jobs by key or id."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from django_graphile_worker.exceptions import SchemaError
from django_graphile_worker.jobs import Job, JobKeyMode, JobSpec
from django_graphile_worker.payloads import decode, decode_leniently
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.schema import statement
from django_graphile_worker.sql.workers import worker_of

Row = tuple[Any, ...]


class Cursor(Protocol):
    """What Django's cursors and psycopg's have in common."""

    def execute(self, statement: Any, parameters: Any = None, /) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...

    @property
    def rowcount(self) -> int: ...


def either_way(tag: str, columns: str, function: str, *, first: str, rest: str = "") -> dict[bool, str]:
    """A statement that calls a function of the schema, as it notifies (True) and in silence (False).

    Silence lasts for the one statement: the setting is changed before the function runs, because the
    function's first argument depends on it, and put back with the rows that the function made.
    """
    aloud = f"/* gw:{tag} */ select {columns} from :SCHEMA.{function}({first}{rest}) as job"
    silent = f"""/* gw:{tag} */
        with silence as materialized (
            select coalesce(current_setting('graphile_worker.notify', true), '') as before,
                   set_config('graphile_worker.notify', 'off', true) as now
        )
        select {columns}, set_config('graphile_worker.notify', silence.before, true)
        from silence left join lateral
            :SCHEMA.{function}(case silence.now when 'off' then {first} end{rest}) as job on true"""
    return {True: aloud, False: silent}


def added_columns(now: str) -> str:
    """What the caller of add_job cannot know; an array may have been appended to a waiting job's.

    Most times are the transaction's own, and reading a time is what costs Python most: those come as null.
    """
    times = [f"nullif({readable(column)}, now())" for column in ("job.run_at", "job.created_at", "job.updated_at")]
    return f"""
        {now}, job.id, job.priority, job.attempts, job.max_attempts, job.revision, {", ".join(times)},
        case when job.key is not null then job.payload::text end, job.key"""


JOB_COLUMNS = f"""
    job.id, job.task_id, job.job_queue_id, job.payload::text, job.priority, {readable("job.run_at")},
    job.attempts, job.max_attempts, job.last_error, {readable("job.created_at")}, {readable("job.updated_at")},
    job.key, {readable("job.locked_at")}, job.locked_by, job.revision, job.flags::text"""

# Where JOB_COLUMNS has it; it is zero until somebody adds a job with the same key.
_REVISION = 14

# Seconds rather than an interval: a day is 24 hours here, also where the session's time zone has summer time.
_MOMENT = "coalesce(%s::timestamptz, now() + %s::float8 * interval '1 second')"

_ADD_JOB_ARGUMENTS = f", %s::json, %s::text, {_MOMENT}, %s::int, %s::text, %s::int, %s::text[], %s::text"

ADD_JOB = either_way("add_job", added_columns("now()"), "add_job", first="%s::text", rest=_ADD_JOB_ARGUMENTS)


def add_job(cursor: Cursor, spec: JobSpec, payload: str | None, *, schema: str, notify: bool = True) -> Job:
    """Add one job; `payload` is the spec's as JSON text, None for the default."""
    if spec.job_key is not None and spec.job_key_mode is JobKeyMode.UNSAFE_DEDUPE:
        return _add_unless_known(cursor, spec, payload, schema=schema, notify=notify)
    cursor.execute(statement(ADD_JOB[notify], schema), _add_job_parameters(spec, payload))
    row = Added._make(cursor.fetchone()[:WIDTH])
    _require(row.id, schema)
    return added_job(spec, payload, row, row.now)


# A role that may only add jobs cannot read which names a job has that was there before.
_CAN_READ_NAMES = "has_table_privilege(':SCHEMA._private_tasks'::regclass, 'select')"
_CAN_READ_NAMES_PLACE = _REVISION + 2

ADD_JOB_UNLESS_KNOWN = either_way(
    "add_job", f"{JOB_COLUMNS}, {_CAN_READ_NAMES}", "add_job", first="%s::text", rest=_ADD_JOB_ARGUMENTS
)


def _add_unless_known(cursor: Cursor, spec: JobSpec, payload: str | None, *, schema: str, notify: bool) -> Job:
    cursor.execute(statement(ADD_JOB_UNLESS_KNOWN[notify], schema), _add_job_parameters(spec, payload))
    row = cursor.fetchone()
    _require(row[0], schema)
    if row[_REVISION] > 0 and row[_CAN_READ_NAMES_PLACE]:
        return jobs_from(cursor, [row], schema=schema)[0]
    return _job(row, {("task", row[1]): spec.identifier, ("queue", row[2]): spec.queue_name or ""})


def _add_job_parameters(spec: JobSpec, payload: str | None) -> tuple[Any, ...]:
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


def moment(run_at: datetime | timedelta | None) -> tuple[datetime | None, float | None]:
    """The two parameters of a time: itself, or seconds from the database's now."""
    if isinstance(run_at, timedelta):
        return None, run_at.total_seconds()
    return run_at, None


class Added(NamedTuple):
    """A row of `added_columns`."""

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


def added_job(spec: JobSpec, payload: str | None, row: Added, now: datetime) -> Job:
    """The job that a spec became, from what the database added to it."""
    return Job(
        id=row.id,  # type: ignore[arg-type]  # the caller has looked
        task_identifier=spec.identifier,
        payload=_payload(payload, row.payload),
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


def _payload(given: str | None, stored: str | None) -> Any:
    if stored is not None:
        return decode_leniently(stored)
    return {} if given is None else decode(given)


def _require(job_id: int | None, schema: str) -> None:
    if job_id is None:
        raise SchemaError(
            f"add_job: expected the job back, got nothing: the functions in the schema {schema!r} are "
            'not those of django-graphile-worker. Run "manage.py graphile_worker repair".'
        )


REMOVE_JOB = either_way("remove_job", JOB_COLUMNS, "remove_job", first="%s::text")


def remove_job(cursor: Cursor, job_key: str, *, schema: str, notify: bool = True) -> Job | None:
    """Remove the job with this key; a running one loses its key and is not tried again."""
    cursor.execute(statement(REMOVE_JOB[notify], schema), [job_key])
    return next(iter(jobs_from(cursor, cursor.fetchall(), schema=schema)), None)


_FROM_JOBS = f"select {JOB_COLUMNS} from :SCHEMA._private_jobs as job where job."
GET_JOB_BY_ID = f"/* gw:get_job */ {_FROM_JOBS}id = %s::bigint"
GET_JOB_BY_KEY = f"/* gw:get_job */ {_FROM_JOBS}key = %s::text"


def get_job(cursor: Cursor, id_or_key: int | str, *, schema: str) -> Job | None:
    """The job with this id, or with this key."""
    text = GET_JOB_BY_KEY if isinstance(id_or_key, str) else GET_JOB_BY_ID
    cursor.execute(statement(text, schema), [id_or_key])
    return next(iter(jobs_from(cursor, cursor.fetchall(), schema=schema)), None)


COMPLETE_JOBS = f"/* gw:complete_jobs */ select {JOB_COLUMNS} from :SCHEMA.complete_jobs(%s::bigint[]) as job"


def complete_jobs(cursor: Cursor, job_ids: Sequence[int], *, schema: str) -> list[Job]:
    """Delete jobs that are not running, as if they had succeeded."""
    cursor.execute(statement(COMPLETE_JOBS, schema), [list(job_ids)])
    return jobs_from(cursor, cursor.fetchall(), schema=schema)


PERMANENTLY_FAIL_JOBS = (
    f"/* gw:permanently_fail_jobs */ select {JOB_COLUMNS} "
    "from :SCHEMA.permanently_fail_jobs(%s::bigint[], %s::text) as job"
)


def permanently_fail_jobs(
    cursor: Cursor, job_ids: Sequence[int], error_message: str | None, *, schema: str
) -> list[Job]:
    """Use up the attempts of jobs that are not running."""
    cursor.execute(statement(PERMANENTLY_FAIL_JOBS, schema), [list(job_ids), error_message])
    return jobs_from(cursor, cursor.fetchall(), schema=schema)


class Changes(NamedTuple):
    """What becomes of rescheduled jobs; None leaves a value as it is."""

    run_at: datetime | timedelta | None
    priority: int | None
    attempts: int | None
    max_attempts: int | None


RESCHEDULE_JOBS = either_way(
    "reschedule_jobs",
    JOB_COLUMNS,
    "reschedule_jobs",
    first="%s::bigint[]",
    rest=f", {_MOMENT}, %s::int, %s::int, %s::int",
)


def reschedule_jobs(
    cursor: Cursor,
    job_ids: Sequence[int],
    changes: Changes,
    *,
    schema: str,
    notify: bool = True,
) -> list[Job]:
    """Change jobs that are not running."""
    run_at, *numbers = changes
    parameters = [list(job_ids), *moment(run_at), *numbers]
    cursor.execute(statement(RESCHEDULE_JOBS[notify], schema), parameters)
    return jobs_from(cursor, cursor.fetchall(), schema=schema)


FORCE_UNLOCK_WORKERS = "/* gw:force_unlock_workers */ select :SCHEMA.force_unlock_workers(%s::text[])"


def force_unlock_workers(cursor: Cursor, worker_ids: Sequence[str], *, schema: str) -> None:
    """Take their locks from workers that are known to be gone."""
    cursor.execute(statement(FORCE_UNLOCK_WORKERS, schema), [list(worker_ids)])


# A statement of its own: names made by the function, or by someone it waited for, are not in its snapshot.
NAMES = """/* gw:names */
    select 'task', id, identifier from :SCHEMA._private_tasks where id = any(%s::int[])
    union all
    select 'queue', id, queue_name from :SCHEMA._private_job_queues where id = any(%s::int[])"""


def jobs_from(cursor: Cursor, rows: Sequence[Row], *, schema: str) -> list[Job]:
    """Jobs from rows of JOB_COLUMNS; rows of nulls, a function's way to say none, are left out."""
    rows = [row for row in rows if row[0] is not None]
    if not rows:
        return []
    task_ids = {row[1] for row in rows}
    queue_ids = {row[2] for row in rows if row[2] is not None}
    cursor.execute(statement(NAMES, schema), [list(task_ids), list(queue_ids)])
    names = {(kind, identity): name for kind, identity, name in cursor.fetchall()}
    return [_job(row, names) for row in rows]


def _job(row: Row, names: dict[tuple[str, int], str]) -> Job:
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


def flags_from(text: str | None) -> frozenset[str]:
    """The names in a flags column, read as text; anything but an object has none."""
    flags = json.loads(text) if text else None
    return frozenset(flags) if isinstance(flags, dict) else frozenset()
