"""One job with all its details: its queue, its worker, the jobs that it waits for, and its last attempts.

Also the call of ``add_job`` that would add it again, and the payloads of many jobs for lists and files, never more than
a limit of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.job_options import SQL_OPTIONS
from django_graphile_worker.jobs import attempts_made
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.inspection import past_attempts
from django_graphile_worker.sql.inspection.job_list import State, state_of
from django_graphile_worker.sql.inspection.past_attempts import HistoryRow
from django_graphile_worker.sql.jobs import IS_ALIVE, IS_DUE, JOIN_PARKED, TRUE_RUN_AT
from django_graphile_worker.sql.results import HistoryOutcome
from django_graphile_worker.sql.statements import literal, quoted, statement

# A larger payload is read in part, so it cannot be decoded.
MAX_PAYLOAD = 200_000
MAX_AHEAD = 1_000

DETAIL = f"""/* gw:job-detail */
select job.id, task.identifier, queue.queue_name,
    coalesce(left(job.payload::text, %(longest)s::int), job.payload::text), octet_length(job.payload::text),
    job.priority, {readable(TRUE_RUN_AT)}, job.attempts, job.max_attempts, job.last_error,
    {readable("job.created_at")}, {readable("job.updated_at")}, job.key, {readable("job.locked_at")},
    :SCHEMA._private_worker_of(job.locked_by), job.revision, job.flags::text, job.is_available,
    {IS_DUE}, recovery.recoveries,
    :SCHEMA._private_worker_of(queue.locked_by), {readable("queue.locked_at")}, running.id, running.identifier,
    ahead.number,
    extract(epoch from now() - worker.last_heartbeat_at)::float8,
    (select count(*) from :SCHEMA._private_workers as worker
        where worker.metadata -> 'tasks' ? task.identifier and {IS_ALIVE}),
    request.reason, request.requested_by, {readable("request.requested_at")},
    parked.job_id is not null, blocking.limit_name, blocking.key_text, {readable("lane.blocked_at")}
from :SCHEMA._private_jobs as job
{JOIN_PARKED}
left join :SCHEMA._private_limit_lanes as lane on lane.id = parked.lane_id
left join :SCHEMA._private_limit_keys as blocking on blocking.id = lane.blocked_by
left join :SCHEMA._private_tasks as task on task.id = job.task_id
left join :SCHEMA._private_job_queues as queue on queue.id = job.job_queue_id
left join :SCHEMA._private_workers as worker on worker.id = :SCHEMA._private_worker_of(job.locked_by)
left join :SCHEMA._private_job_recoveries as recovery on recovery.job_id = job.id
left join :SCHEMA._private_stop_requests as request
    on request.job_id = job.id and request.token = job.locked_by and (
        request.requested_at >= job.locked_at or starts_with(job.locked_by, 'django-worker-'))
left join lateral (
    select other.id, other_task.identifier from :SCHEMA._private_jobs as other
    left join :SCHEMA._private_tasks as other_task on other_task.id = other.task_id
    where other.locked_at >= queue.locked_at - interval '1 second' and other.job_queue_id = queue.id
        and other.locked_by = queue.locked_by
    order by other.priority, other.run_at, other.id limit 1) as running
    on queue.locked_at is not null and job.locked_at is null
left join lateral (
    select count(*) as number from (
        select from :SCHEMA._private_tasks as each_task
        cross join lateral (
            select from :SCHEMA._private_jobs as other
            where other.task_id = each_task.id and other.job_queue_id = queue.id and other.is_available
                and (other.priority, other.run_at, other.id) < (job.priority, job.run_at, job.id)
                and other.run_at <= now()
            order by other.priority, other.run_at, other.id limit %(most)s) as other
        limit %(most)s) as counted) as ahead on queue.id is not null and job.is_available
where job.id = %(id)s::bigint"""


class JobDetail(NamedTuple):
    """A job with its details; the payload is text, and may be cut."""

    id: int
    task_identifier: str | None
    queue_name: str | None
    payload_text: str
    payload_size: int
    priority: int
    run_at: Any
    attempts: int
    max_attempts: int
    last_error: str | None
    created_at: Any
    updated_at: Any
    key: str | None
    locked_at: Any
    locked_by: str | None
    revision: int
    flags_text: str | None
    is_available: bool
    is_due: bool
    recoveries: int | None
    queue_locked_by: str | None
    queue_locked_at: Any
    queue_running_id: int | None
    queue_running_task: str | None
    ahead: int | None
    holder_silent_seconds: float | None
    # The number of live workers that run the task.
    live_workers: int
    # Who cancelled the job while it runs, and why; None if it was not cancelled.
    stop_reason: str | None
    stop_requested_by: str | None
    stop_requested_at: Any
    is_limited: bool
    # The key that a job that waits for a limit waits for, unless its turn has come.
    limit_name: str | None
    limit_key: str | None
    limited_since: Any

    @property
    def state(self) -> State:
        return state_of(self)

    @property
    def attempts_made(self) -> int:
        """The number of real attempts: in the column, a job without further attempts has used up all of them."""
        return attempts_made(self.attempts, self.max_attempts, self.last_error)


def job_detail(
    cursor: Any, job_id: int, *, schema: str, timeout: float, longest: int | None = MAX_PAYLOAD
) -> JobDetail | None:
    """Return the job with this id; a worker without a heartbeat for ``timeout`` seconds does not count as alive."""
    parameters = {"id": job_id, "longest": longest, "most": MAX_AHEAD + 1, "timeout": timeout}
    cursor.execute(statement(DETAIL, schema), parameters)
    row = cursor.fetchone()
    return None if row is None else JobDetail._make(row)


# A role that may only read tables may not read the sequence.
LAST_ID = """/* gw:last-job-id */
select case when has_sequence_privilege(':SCHEMA.jobs_id_seq1', 'select, usage')
    then coalesce(pg_sequence_last_value(':SCHEMA.jobs_id_seq1'::regclass), 0) end"""

FAILURES = (HistoryOutcome.FAILED, HistoryOutcome.PERMANENTLY_FAILED, HistoryOutcome.FAILED_BY_OPERATOR)


def last_job_id(cursor: Any, *, schema: str) -> int | None:
    """Return the id of the job that was added last, 0 if there was none; None if the role may not read it."""
    cursor.execute(statement(LAST_ID, schema))
    found: int | None = cursor.fetchone()[0]
    return found


def last_attempt(cursor: Any, job_id: int, *, schema: str) -> HistoryRow | None:
    """Return the attempt of a job that ended last, if the history has one."""
    return next(iter(past_attempts.attempts_of_job(cursor, job_id, schema=schema)), None)


def last_failure(cursor: Any, job_id: int, *, schema: str) -> datetime | None:
    """Return when the last attempt of a job failed, if the history has it."""
    attempts = past_attempts.attempts_of_job(cursor, job_id, schema=schema)
    return next((attempt.ended_at for attempt in attempts if attempt.outcome in FAILURES), None)


def add_job_call(identifier: str, payload_text: str, options: Mapping[str, Any], *, schema: str) -> str:
    """Return a statement for psql that adds a job; ``options`` are those that are not left out."""
    arguments = [_literal(identifier), f"payload => {_literal(payload_text)}"]
    given = [option.name for option in SQL_OPTIONS if option.name in options]
    arguments += [f"{name} => {_literal(options[name])}" for name in given]
    body = ",\n  ".join(arguments)
    return f"select {quoted(schema)}.add_job(\n  {body}\n);"


def _literal(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return f"array[{', '.join(map(_literal, value))}]"
    return literal(value.isoformat() if isinstance(value, datetime) else value).strip()


# To cut a payload, PostgreSQL reads it whole. So a payload whose stored value has more bytes than this is not read at
# all. A compressed value may be ninety times as long as what is stored.
MAX_STORED = 16_384
MAX_COMPRESSED = 3_000
# How many characters of each payload a list reads.
BEGINNING_LENGTH = 400
# How many characters a payload in a file may have. A longer payload is left out.
MAX_WHOLE_PAYLOAD = 65_536
# How many payloads of a file one statement reads.
PAYLOADS_PER_STATEMENT = 100

# pg_column_size() and pg_column_compression() read only the row: not the value that is stored beside the table.
PAYLOAD_BEGINNINGS = """/* gw:payload-beginnings */
select job.id, case when pg_column_size(job.payload) <= case
        when pg_column_compression(job.payload) is null then %(most_stored)s::int else %(most_compressed)s::int end
    then left(job.payload::text, %(longest)s::int) end
from :SCHEMA._private_jobs as job
where job.id = any (%(ids)s::bigint[])"""


def payload_beginnings(cursor: Any, ids: Sequence[int], *, schema: str) -> dict[int, str | None]:
    """Return the beginning of the payload of each job; None for a payload that is too large to be read for a list."""
    return _read_payloads(cursor, ids, schema, BEGINNING_LENGTH, most_stored=MAX_STORED, most_compressed=MAX_COMPRESSED)


def whole_payloads(cursor: Any, ids: Sequence[int], *, schema: str) -> dict[int, str | None]:
    """Return the payload of each job as text; None for a payload that is longer than LONGEST."""
    found: dict[int, str | None] = {}
    limits = {"most_stored": 4 * MAX_WHOLE_PAYLOAD, "most_compressed": MAX_WHOLE_PAYLOAD}
    for start in range(0, len(ids), PAYLOADS_PER_STATEMENT):
        found |= _read_payloads(
            cursor, ids[start : start + PAYLOADS_PER_STATEMENT], schema, MAX_WHOLE_PAYLOAD + 1, **limits
        )
    return {job_id: text if text and len(text) <= MAX_WHOLE_PAYLOAD else None for job_id, text in found.items()}


def _read_payloads(cursor: Any, ids: Sequence[int], schema: str, longest: int, **limits: int) -> dict[int, str | None]:
    cursor.execute(statement(PAYLOAD_BEGINNINGS, schema), {"ids": list(ids), "longest": longest, **limits})
    return dict(cursor.fetchall())
