"""What is kept of jobs that ended: their results and the history of attempts. Reads results, deletes what has expired.

The functions that end claims write the rows, and for jobs that a call of the API ended the statements with
``statements.RECORD_OPERATOR``. The statement that ends a job deletes its row and writes the row of its result, so a
statement that reads both sees one of them.

The table of the history has a partition for each day in UTC. Only the owner of the table may make, index and drop
partitions, so functions of the schema do it, with the rights of the owner.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any, NamedTuple

from django_graphile_worker.conf import Settings
from django_graphile_worker.payloads import decode_leniently
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.codecs import int_array
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.statements import Cursor, statement
from django_graphile_worker.sql.workers import worker_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultKeeping:
    """For how many seconds the results of tasks are kept (None: not at all), and whether there is a history."""

    # The seconds of tasks that differ from the default, by identifier.
    seconds: Mapping[str, float | None]
    default: float | None = None
    has_history: bool = False

    def parameters(self) -> dict[str, Any]:
        """Return the parameter of KEEPING."""
        kept = {"tasks": dict(self.seconds), "default": self.default, "history": self.has_history}
        return {"keeping": json.dumps(kept)}


NOTHING_KEPT = ResultKeeping(seconds={})

# The classes of exceptions that results name for a job that an operator failed, and for one that was cancelled.
OPERATOR_ERROR = "django_graphile_worker.exceptions.FailedByOperatorError"
CANCELLED = "django_graphile_worker.exceptions.JobCancelledError"


def keeping(settings: Settings, tasks: Iterable[Task[Any, Any]]) -> ResultKeeping:
    """Return what these tasks keep under these settings."""
    default = settings.keep_results
    seconds = {task.identifier: task.result_seconds(default) for task in tasks}
    return ResultKeeping(
        seconds={identifier: each for identifier, each in seconds.items() if each != default},
        default=default,
        has_history=settings.history is not None,
    )


# Partitions are made for today and this many days ahead: if no worker can make them for a day, nothing is missed.
DAYS_AHEAD = 2
# How many rows of the default partition one statement deletes.
MAX_HISTORY_DELETED = 5000


class HistoryOutcome(IntEnum):
    """How an attempt ended."""

    SUCCEEDED = 1
    FAILED = 2
    PERMANENTLY_FAILED = 3
    INTERRUPTED = 4
    LOST = 5
    REMOVED_BY_OPERATOR = 6
    FAILED_BY_OPERATOR = 7
    # The error says who cancelled the job, and why.
    CANCELLED = 8
    # The job was not started in time, and never ran.
    EXPIRED = 9


MAKE_HISTORY_PARTITIONS = """/* gw:make-history */
select :SCHEMA._private_make_history_partitions(%(days)s::int, %(now)s::timestamptz)"""

DROP_OLD_HISTORY = """/* gw:drop-history */
select :SCHEMA._private_drop_history(
    coalesce(%(now)s::timestamptz, now()) - %(seconds)s::float8 * interval '1 second', %(most)s::int)"""

INDEX_HISTORY_DAYS = "/* gw:index-history */ select :SCHEMA._private_index_history(%(now)s::timestamptz)"


def make_history_partitions(cursor: Any, *, schema: str, now: datetime | None = None) -> int:
    """Make the partitions of today and of the next days; return how many were missing."""
    cursor.execute(statement(MAKE_HISTORY_PARTITIONS, schema), {"days": DAYS_AHEAD, "now": now})
    return int(cursor.fetchone()[0])


def drop_old_history(cursor: Any, *, schema: str, older_than: float, now: datetime | None = None) -> bool:
    """Do one step of dropping the days that ended this many seconds ago; return True if there may be another."""
    cursor.execute(
        statement(DROP_OLD_HISTORY, schema), {"seconds": older_than, "most": MAX_HISTORY_DELETED, "now": now}
    )
    return bool(cursor.fetchone()[0])


def index_history_days(cursor: Any, *, schema: str, now: datetime | None = None) -> bool:
    """Do one step of indexing the days that are over; return True if there may be another."""
    cursor.execute(statement(INDEX_HISTORY_DAYS, schema), {"now": now})
    return bool(cursor.fetchone()[0])


class ResultStatus(IntEnum):
    """The status in the row of a result. It holds while the job itself does not exist, or has failed for good."""

    WAITING = 0
    SUCCEEDED = 1
    FAILED = 2
    REMOVED = 3
    # The value of the result says who cancelled it, and why.
    CANCELLED = 4
    EXPIRED = 5


def cancellation_text(cancelled_by: str, reason: str) -> str:
    """Return "Cancelled by maria: sent twice", as the history has it, with as much of it as is known."""
    name = f" by {cancelled_by}" if cancelled_by else ""
    return f"Cancelled{name}: {reason}" if reason else f"Cancelled{name}."


# A row that is visible though the transaction of its xmin has not ended was written by this transaction, or in one of
# its savepoints, whose ids are not lower than its own. The id of a transaction has 64 bits, an xmin only the lower 32.
IS_UNCOMMITTED = """
    case when (job.xmin::text::bigint - own.id) & 4294967295::bigint < 1073741824::bigint
        then pg_xact_status((own.id + ((job.xmin::text::bigint - own.id) & 4294967295::bigint))::text::pg_catalog.xid8)
            = 'in progress'::text
        else false
    end"""

# A progress is of use only for the attempt that reported it, or for its result.
RESULTS = f"""/* gw:results */
select wanted.job_id, job.id is not null, {IS_UNCOMMITTED}, coalesce(task.identifier, result.task_identifier),
    case when job.id is null then result.queue_name else queue.queue_name end,
    :SCHEMA._private_worker_of(job.locked_by), {readable("job.locked_at")}, job.attempts, job.max_attempts,
    job.last_error, {readable("coalesce(job.created_at, result.added_at)")},
    result.status, {readable("result.first_started_at")}, {readable("result.last_started_at")},
    {readable("result.finished_at")}, result.value, result.attempts::text,
    progress.done, progress.total, progress.message, {readable("progress.updated_at")}
from unnest(%(ids)s::bigint[]) as wanted (job_id)
cross join (select pg_current_xact_id_if_assigned()::text::bigint as id) as own
left join :SCHEMA._private_jobs as job on job.id = wanted.job_id
left join :SCHEMA._private_tasks as task on task.id = job.task_id
left join :SCHEMA._private_job_queues as queue on queue.id = job.job_queue_id
left join :SCHEMA._private_results as result on result.job_id = wanted.job_id
left join :SCHEMA._private_progress as progress on progress.job_id = wanted.job_id
    and (job.id is null or progress.attempt >= job.attempts)
where job.id is not null or result.job_id is not null"""


class ResultRow(NamedTuple):
    """What the database has about a job, in the order of the columns."""

    job_id: int
    is_job_there: bool
    # Whether the transaction that reads the job has added or changed it, so that nobody else sees it as it is.
    is_uncommitted: bool
    task_identifier: str
    queue_name: str | None
    worker_id: str | None
    locked_at: Any
    attempts: int | None
    max_attempts: int | None
    last_error: str | None
    added_at: Any
    status: int | None
    first_started_at: Any
    last_started_at: Any
    finished_at: Any
    value_text: str | None
    attempts_text: str | None
    done: float | None
    total: float | None
    message: str | None
    progress_at: Any

    @property
    def has_ended(self) -> bool:
        """Whether the job never runs again by itself: it has succeeded, failed permanently, or is gone."""
        if not self.is_job_there:
            return True
        return self.worker_id is None and (self.attempts or 0) >= (self.max_attempts or 0)


def read_results(cursor: Cursor, job_ids: Sequence[int], *, schema: str) -> dict[int, ResultRow]:
    """Return what the database has about these jobs; an id of which it has nothing is missing."""
    cursor.execute(statement(RESULTS, schema), {"ids": int_array(job_ids)})
    return {row[0]: ResultRow._make(row) for row in cursor.fetchall()}


# One statement, and so one snapshot: the statement that ends a job deletes its row and writes its result. The attempts
# of a job that was replaced under its key do not count for the new job.
STORED_TASK = f"""/* gw:task-result */
select
    job.id, job_task.identifier, job.payload::text, {readable("job.created_at")}, job.locked_by,
    {readable("job.locked_at")}, job.attempts, job.max_attempts, job.last_error, {readable("job.updated_at")},
    kept.job_id, kept.task_identifier, kept.payload, {readable("kept.added_at")}, kept.status,
    {readable("kept.first_started_at")}, {readable("kept.last_started_at")}, {readable("kept.finished_at")},
    kept.value, kept.attempts::text
from (values (%(job_id)s::bigint)) as wanted (id)
left join :SCHEMA._private_jobs as job on job.id = wanted.id
left join :SCHEMA._private_tasks as job_task on job_task.id = job.task_id
left join :SCHEMA._private_results as kept
    on kept.job_id = wanted.id and (job.id is null or kept.revision = job.revision)"""

# The error of a job that ended without a run, if nothing else is known.
_ENDED_UNRUN = "The job was removed, completed or failed by a call of the API or in the admin, and not by its task."


class StoredAttempt(NamedTuple):
    """An attempt that has ended."""

    worker_id: str | None
    exception_class: str | None
    traceback: str | None


class StoredTask(NamedTuple):
    """The state of a Django task."""

    job_id: int
    task_identifier: str
    payload: Any
    added_at: datetime
    is_running: bool
    is_waiting: bool
    has_succeeded: bool
    first_started_at: datetime | None
    last_started_at: datetime | None
    finished_at: datetime | None
    value: Any
    attempts: list[StoredAttempt]


def stored_task(cursor: Cursor, job_id: int, *, schema: str) -> StoredTask | None:
    """Return the state of a job, or None if there is neither a job nor a result."""
    cursor.execute(statement(STORED_TASK, schema), {"job_id": job_id})
    row = cursor.fetchone()
    job, kept = row[:10], row[10:]
    if job[0] is None:
        return None if kept[0] is None else _ended(kept)
    return _existing(job, kept)


def _ended(kept: Any) -> StoredTask:
    """Return the state of a job that is gone: it succeeded, failed, or was removed."""
    has_succeeded = kept[4] == ResultStatus.SUCCEEDED
    attempts, value = _attempts(kept[9]), _decoded(kept[8])
    if kept[4] == ResultStatus.CANCELLED:
        attempts, value = _with_cancellation(attempts, value), None
    return StoredTask(
        job_id=kept[0],
        task_identifier=kept[1],
        payload=_decoded(kept[2]),
        added_at=kept[3],
        is_running=False,
        is_waiting=False,
        has_succeeded=has_succeeded,
        first_started_at=kept[5],
        last_started_at=kept[6],
        finished_at=kept[7],
        value=value,
        attempts=attempts if has_succeeded else _with_error(attempts, _ENDED_UNRUN),
    )


def _existing(job: Any, kept: Any) -> StoredTask:
    job_id, identifier, payload, added_at, locked_by, locked_at, attempts, max_attempts, last_error, updated_at = job
    is_running = locked_at is not None
    is_waiting = not is_running and attempts < max_attempts
    has_failed = not is_running and not is_waiting
    ended = _attempts(kept[9])
    if has_failed:
        ended = _with_error(ended, last_error or _ENDED_UNRUN)
    if is_running and locked_by:
        ended.append(StoredAttempt(worker_of(locked_by), None, None))
    return StoredTask(
        job_id=job_id,
        task_identifier=identifier,
        payload=_decoded(payload),
        added_at=added_at,
        is_running=is_running,
        is_waiting=is_waiting,
        has_succeeded=False,
        first_started_at=kept[5] or (locked_at if is_running else None),
        last_started_at=locked_at if is_running else kept[6],
        finished_at=(kept[7] or updated_at) if has_failed else None,
        value=None,
        attempts=ended,
    )


def _with_error(attempts: list[StoredAttempt], text: str) -> list[StoredAttempt]:
    """Return the attempts of a job that did not succeed, with an error if none of them has one."""
    if any(attempt.exception_class for attempt in attempts):
        return attempts
    return [*attempts, StoredAttempt(None, OPERATOR_ERROR, text)]


def _with_cancellation(attempts: list[StoredAttempt], who_and_why: Any) -> list[StoredAttempt]:
    """Return the attempts of a cancelled job; a job that was cancelled while it waited has none for that."""
    if attempts and attempts[-1].exception_class == CANCELLED:
        return attempts
    details = who_and_why if isinstance(who_and_why, dict) else {}
    text = cancellation_text(details.get("by", ""), details.get("reason", ""))
    return [*attempts, StoredAttempt(None, CANCELLED, text)]


def _attempts(text: str | None) -> list[StoredAttempt]:
    attempts = _decoded(text)
    if not isinstance(attempts, list):
        return []
    return [
        StoredAttempt(each.get("worker_id"), each.get("exception_class"), each.get("traceback"))
        for each in attempts
        if isinstance(each, dict)
    ]


def _decoded(text: str | None) -> Any:
    return None if text is None else decode_leniently(text)


# The channel of the notifications that a job has ended for which a session waits: workers notify of no other jobs than
# those in the table of waiters. The payload is JSON: {"schema": the worker schema, "jobs": ids of jobs}.
CHANNEL = "jobs:result"

REGISTER_WAITER = """/* gw:register-waiter */
insert into :SCHEMA._private_waiters as waiter (job_id, waiter, expires_at)
select job_id, %(waiter)s::text, clock_timestamp() + interval '1 second' * %(seconds)s::float8
from unnest(%(ids)s::bigint[]) as wanted (job_id) order by job_id
on conflict (job_id, waiter) do update set expires_at = excluded.expires_at"""


def register_waiter(cursor: Cursor, job_ids: Sequence[int], *, waiter: str, seconds: float, schema: str) -> None:
    """List the waiter for these jobs, for this many seconds. The caller commits before it reads the jobs."""
    parameters = {"ids": int_array(job_ids), "waiter": waiter, "seconds": seconds}
    cursor.execute(statement(REGISTER_WAITER, schema), parameters)


def announced_jobs(payload: str) -> set[tuple[str, int]]:
    """Return the worker schema and the id of each job that a notification names; any session may send other texts."""
    try:
        announced = json.loads(payload)
        return {(str(announced["schema"]), int(job_id)) for job_id in announced["jobs"]}
    except (ValueError, TypeError, LookupError, RecursionError):
        return set()


PRUNE_RESULTS = """/* gw:prune-results */
select number, reached from :SCHEMA._private_prune_results(
    %(most)s::int, %(go_on_at)s::timestamptz, %(now)s::timestamptz)"""

PRUNE_WAITERS = "/* gw:prune-waiters */ delete from only :SCHEMA._private_waiters where expires_at < now()"
# How many results one statement deletes: it takes some milliseconds.
MAX_PRUNED = 2000


class Pruned(NamedTuple):
    """How many expired results were found, and where the next call continues; None after the last result."""

    found: int
    reached: datetime | None


def prune_results(
    cursor: Any, *, schema: str, go_on_at: datetime | None = None, most: int = MAX_PRUNED, now: datetime | None = None
) -> Pruned:
    """Delete some of the results that have expired.

    ``go_on_at`` is where the last call ended: entries of deleted results before it are not read again.
    """
    cursor.execute(statement(PRUNE_RESULTS, schema), {"most": most, "go_on_at": go_on_at, "now": now})
    found, reached = cursor.fetchone()
    return Pruned(found, reached if found >= most else None)


def prune_waiters(cursor: Any, *, schema: str) -> None:
    """Delete the rows of sessions that waited for a result and disappeared."""
    cursor.execute(statement(PRUNE_WAITERS, schema))
