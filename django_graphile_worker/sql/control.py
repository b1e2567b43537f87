"""What is asked of workers: to leave jobs of a queue, task or flag alone (pauses), and to stop jobs (cancellations).

Waiting jobs that are cancelled are removed at once; ``sql/ddl/tables.sql`` says how a cancelled job differs from one
that was removed or replaced while it ran. ``read_control()`` is how a worker reads what is asked of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Self

from django_graphile_worker.jobs import Job
from django_graphile_worker.sql.codecs import int_array, text_array
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.jobs import JOB_COLUMNS, jobs_from
from django_graphile_worker.sql.releases import HeldJob
from django_graphile_worker.sql.results import NOTHING_KEPT, ResultKeeping
from django_graphile_worker.sql.statements import KEEPING, MOMENT, Cursor, Row, moment, statement


class PauseKind(StrEnum):
    """What is paused."""

    QUEUE = "queue"
    TASK = "task"
    FLAG = "flag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A queue, a task or a flag whose jobs wait."""

    kind: PauseKind
    name: str
    paused_at: datetime
    # None: until it is resumed.
    until: datetime | None = None
    reason: str = ""
    # The user or the program that paused it.
    by: str = ""

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Self:
        kind, name, paused_at, until, reason, by = row
        return cls(kind=PauseKind(kind), name=name, paused_at=paused_at, until=until, reason=reason, by=by)

    def holds(self, task_identifier: str | None, queue_name: str | None, flags: Collection[str]) -> bool:
        """Return whether a job of this task, queue and flags waits for the end of the pause."""
        if self.kind is PauseKind.FLAG:
            return self.name in flags
        return self.name == (task_identifier if self.kind is PauseKind.TASK else queue_name)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def _pause_event(event: str, kind: str, name: str, by: str) -> str:
    """Return the expression that writes the event about the row ``pause`` of a statement, committed with it."""
    return f""":SCHEMA._private_add_event('{event}', 1, {name}, jsonb_build_object(
    'what', {kind}, 'name', {name}, 'by', nullif({by}, ''), 'reason', nullif(left(pause.stored_reason, 1000), ''),
    'until', case when pause.ends_at < 'infinity' then pause.ends_at end))"""


PAUSE = f"""/* gw:pause */
select {readable("pause.paused_at")}, {readable("pause.ends_at")}, pause.stored_reason, pause.stored_by,
    {_pause_event("work_paused", "%s::text", "%s::text", "pause.stored_by")}, pause.was_paused
from :SCHEMA._private_pause(
    %s::text, %s::text, {MOMENT}, %s::text, %s::text, false, %s::timestamptz) as pause"""

RESUME = f"""/* gw:resume */
select {readable("pause.paused_at")}, {readable("pause.ends_at")}, pause.stored_reason, pause.stored_by,
    {_pause_event("work_resumed", "%(kind)s::text", "%(name)s::text", "%(by)s::text")}
from :SCHEMA._private_resume(%(kind)s::text, %(name)s::text) as pause"""

IS_ACTIVE_PAUSE = """pause.handed_to is null
    -- A queue stays locked until a worker has ended its pause.
    and (pause.kind = 'queue' or pause.paused_until is null
        or pause.paused_until > coalesce(%(now)s::timestamptz, clock_timestamp()))"""
ACTIVE_PAUSES = f"""/* gw:pauses */
select pause.kind, pause.name, {readable("pause.paused_at")}, {readable("pause.paused_until")}, pause.reason,
    pause.paused_by
from :SCHEMA._private_pauses as pause
where {IS_ACTIVE_PAUSE}
order by pause.kind, pause.name"""

IS_KNOWN_QUEUE = """/* gw:is-queue */
select exists (
    select from :SCHEMA._private_job_queues as queue
    where queue.queue_name = %(name)s::text)"""

IS_KNOWN_TASK = """/* gw:is-task */
select exists (
    select from :SCHEMA._private_tasks as task
    where task.identifier = %(name)s::text)"""

# The job's claim must still exist: a late statement must not pause a queue whose job another worker has by now.
# A job may extend its pause again and again: only the first pause is an event.
PAUSE_OWN_QUEUE = f"""/* gw:pause-own-queue */
select pause.paused_at, pause.ends_at, pause.stored_reason, pause.stored_by,
    case when not pause.was_paused
        then {_pause_event("work_paused", "'queue'::text", "%(queue_name)s::text", "pause.stored_by")} end,
    pause.was_paused
from :SCHEMA._private_jobs as job
cross join lateral :SCHEMA._private_pause(
    'queue', %(queue_name)s::text,
    coalesce(%(now)s::timestamptz, clock_timestamp()) + %(seconds)s::float8 * interval '1 second',
    %(reason)s::text, %(by)s::text, true, %(now)s::timestamptz) as pause
where job.id = %(job_id)s::bigint and job.locked_by = %(token)s::text"""

SETTLE_PAUSES = f"""/* gw:settle-pauses */
select pause.kind, pause.name, pause.paused_at, pause.ends_at, pause.stored_reason, pause.stored_by,
    {_pause_event("work_resumed", "pause.kind", "pause.name", "''::text")}
from :SCHEMA._private_settle_pauses(%(now)s::timestamptz) as pause"""


class OwnQueue(NamedTuple):
    """The queue that a job asks to pause, and for how long."""

    job_id: int
    token: str
    queue_name: str
    seconds: float
    reason: str
    by: str


def pause(
    cursor: Cursor,
    kind: PauseKind,
    name: str,
    *,
    schema: str,
    until: datetime | timedelta | None = None,
    reason: str = "",
    by: str = "",
    now: datetime | None = None,
) -> tuple[Pause, bool]:
    """Pause a queue, task or flag, or change its pause; return the pause, and whether it was paused before."""
    event = [name, kind.value, name]
    parameters = [*event, kind.value, name, *moment(until), reason, by, now]
    cursor.execute(statement(PAUSE, schema), parameters)
    *found, _, was_paused = cursor.fetchone()
    return Pause.from_row((kind, name, *found)), was_paused


def resume(cursor: Cursor, kind: PauseKind, name: str, *, schema: str, by: str = "") -> Pause | None:
    """End a pause and return it; return None if there is none."""
    cursor.execute(statement(RESUME, schema), {"kind": kind.value, "name": name, "by": by})
    row = cursor.fetchone()
    return None if row is None else Pause.from_row((kind, name, *row[:-1]))


def active_pauses(cursor: Cursor, *, schema: str, now: datetime | None = None) -> list[Pause]:
    """Return all pauses that hold, sorted by kind and name."""
    cursor.execute(statement(ACTIVE_PAUSES, schema), {"now": now})
    return [Pause.from_row(row) for row in cursor.fetchall()]


def is_known_name(cursor: Cursor, kind: PauseKind, name: str, *, schema: str) -> bool:
    """Return True if the database has a queue or a task of this name."""
    text = IS_KNOWN_QUEUE if kind is PauseKind.QUEUE else IS_KNOWN_TASK
    cursor.execute(statement(text, schema), {"name": name})
    return bool(cursor.fetchone()[0])


def pause_own_queues(cursor: Any, queues: Sequence[OwnQueue], *, schema: str, now: datetime | None) -> list[Pause]:
    """Pause the queues of jobs that are still claimed; return the pauses that are new.

    In the order of names, as all statements that change several pauses.
    """
    paused = []
    for each in sorted(queues, key=lambda queue: queue.queue_name):
        cursor.execute(statement(PAUSE_OWN_QUEUE, schema), {**each._asdict(), "now": now})
        row = cursor.fetchone()
        if row is not None and not row[-1]:
            paused.append(Pause.from_row((PauseKind.QUEUE, each.queue_name, *row[:-2])))
    return paused


def settle_pauses(cursor: Any, *, schema: str, now: datetime | None = None) -> list[Pause]:
    """End the pauses whose time is over, and return them; set right what became of the locks of paused queues."""
    cursor.execute(statement(SETTLE_PAUSES, schema), {"now": now})
    return [Pause.from_row(row[:-1]) for row in cursor.fetchall()]


# What a call made of a job, as _private_cancel_jobs says it.
REMOVED, STOPPING, UNSTOPPABLE, ENDED, UNKNOWN = FATES = ("removed", "stopping", "unstoppable", "ended", "unknown")

# The arguments of the function beside the jobs.
CANCEL_ARGUMENTS = f"%(reason)s::pg_catalog.text, %(by)s::pg_catalog.text, %(notify)s::pg_catalog.bool, {KEEPING}"

# Sent over a connection of Django. The columns of the job are null unless the job was removed: the worker that stops a
# running job reports it. They are null for all if the caller does not need them: there may be many large payloads.
_FATES = f"""select fate.id, fate.fate, {JOB_COLUMNS}
from {{call}} as fate
cross join lateral (
    select (case when %(is_read)s::bool and fate.fate = '{REMOVED}'::text then fate.job end).*) as job"""

CANCEL_JOBS = "/* gw:cancel */ " + _FATES.format(
    call=f":SCHEMA._private_cancel_jobs(%(ids)s::bigint[], {CANCEL_ARGUMENTS})"
)
CANCEL_BY_KEY = "/* gw:cancel-by-key */ " + _FATES.format(
    call=f":SCHEMA._private_cancel_by_key(%(key)s::text, {CANCEL_ARGUMENTS})"
)


class Fate(NamedTuple):
    """What became of an id: one of FATES, and the job if it was removed and the caller reads it."""

    job_id: int
    fate: str
    job: Job | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """Who cancels jobs and why, and the settings of the installation."""

    reason: str
    by: str
    notify: bool = True
    keeping: ResultKeeping = NOTHING_KEPT
    # Whether the jobs that are removed are read.
    is_read: bool = True

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of ARGUMENTS."""
        own = {"reason": self.reason, "by": self.by, "notify": self.notify, "is_read": self.is_read}
        return own | self.keeping.parameters()


def cancel_jobs(cursor: Cursor, job_ids: Sequence[int], cancellation: Cancellation, *, schema: str) -> list[Fate]:
    """Remove the jobs that wait, and request the workers of the others to stop them; return what became of each."""
    cursor.execute(statement(CANCEL_JOBS, schema), {"ids": list(job_ids), **cancellation.parameters()})
    return _fates(cursor, schema=schema)


def cancel_by_key(cursor: Cursor, job_key: str, cancellation: Cancellation, *, schema: str) -> list[Fate]:
    """Cancel the job with this key; return what became of it, or nothing if there is none."""
    cursor.execute(statement(CANCEL_BY_KEY, schema), {"key": job_key, **cancellation.parameters()})
    return _fates(cursor, schema=schema)


def _fates(cursor: Cursor, *, schema: str) -> list[Fate]:
    rows = cursor.fetchall()
    jobs = {job.id: job for job in jobs_from(cursor, [row[2:] for row in rows], schema=schema)}
    return [Fate(job_id, fate, jobs.get(job_id)) for job_id, fate, *_ in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledJob:
    """A job that was cancelled while a worker held it, and whose claim has ended."""

    job: Job
    reason: str
    cancelled_by: str
    # Seconds; None if the job never began, or if its worker died.
    duration: float | None


def removed_jobs(fates: Iterable[Fate], cancellation: Cancellation) -> list[CancelledJob]:
    """Return the jobs that a call removed, if it read them."""
    why = {"reason": cancellation.reason, "cancelled_by": cancellation.by}
    return [CancelledJob(job=fate.job, duration=None, **why) for fate in fates if fate.job is not None]


_CANCELLED_COLUMNS = f"ended.duration, ended.reason, ended.cancelled_by, {JOB_COLUMNS}"
_CANCELLED_JOB = "cross join lateral (select (ended.job).*) as job"

END_CANCELLED_CLAIMS = f"""/* gw:end-cancelled-claims */
select {_CANCELLED_COLUMNS}
from :SCHEMA._private_end_cancelled(
    %(ids)s::bigint[], %(tokens)s::text[], true, null, null, null, {KEEPING}) as ended {_CANCELLED_JOB}"""

END_CANCELLED_CLAIMS_OF = f"""/* gw:end-cancelled-of */
select {_CANCELLED_COLUMNS}
from :SCHEMA._private_end_cancelled_of(
    %(worker_ids)s::pg_catalog.text[], %(older_than)s::pg_catalog.float8, {KEEPING},
    %(now)s::pg_catalog.timestamptz) as ended {_CANCELLED_JOB}"""


def end_cancelled_claims(
    cursor: Any, claims: Sequence[HeldJob], *, schema: str, keeping: ResultKeeping = NOTHING_KEPT
) -> tuple[CancelledJob, ...]:
    """End those of the claims whose jobs were cancelled."""
    ids, tokens = [claim.id for claim in claims], [claim.token for claim in claims]
    cursor.execute(statement(END_CANCELLED_CLAIMS, schema), {"ids": ids, "tokens": tokens, **keeping.parameters()})
    return cancelled_jobs(cursor, cursor.fetchall(), schema=schema)


def end_cancelled_claims_of(
    cursor: Any,
    worker_ids: Sequence[str] | None,
    *,
    schema: str,
    older_than: float = 0.0,
    now: datetime | None = None,
    keeping: ResultKeeping = NOTHING_KEPT,
) -> tuple[CancelledJob, ...]:
    """End the claims of dead workers on jobs that were cancelled, so that recovery does not find them.

    Without workers: the claims of workers that are not registered, and have held the jobs for ``older_than`` seconds.
    """
    held = None if worker_ids is None else list(worker_ids)
    parameters = {"worker_ids": held, "older_than": older_than, "now": now, **keeping.parameters()}
    cursor.execute(statement(END_CANCELLED_CLAIMS_OF, schema), parameters)
    return cancelled_jobs(cursor, cursor.fetchall(), schema=schema)


def cancelled_jobs(cursor: Any, rows: Iterable[Row], *, schema: str) -> tuple[CancelledJob, ...]:
    """Return the values of rows: a duration in microseconds, the reason, who cancelled the job, and JOB_COLUMNS."""
    ended = list(rows)
    jobs = jobs_from(cursor, [row[3:] for row in ended], schema=schema)
    return tuple(
        CancelledJob(
            job=job, reason=reason, cancelled_by=by, duration=None if microseconds is None else microseconds / 1e6
        )
        for (microseconds, reason, by, *_), job in zip(ended, jobs, strict=True)
    )


# The channel that workers listen to. The payload is the name of the schema.
CONTROL_CHANNEL = "jobs:control"

# One statement for everything: each row has its kind, and its content as JSON. The tables are nearly always empty.
_READ = """
select 'stop', pg_catalog.json_build_array(
    request.job_id, request.token, request.reason, request.requested_by, exists (
        select from only :SCHEMA._private_jobs as job
        where job.id = request.job_id and job.locked_by = request.token))::text
from only :SCHEMA._private_stop_requests as request
where request.worker_id = %(worker_id)s::text
union all
select 'pause', pg_catalog.json_build_array(
    pause.kind, pause.name, pg_catalog.date_part('epoch', pause.paused_until - coalesce(
        %(now)s::timestamptz, pg_catalog.clock_timestamp())),
    pause.handed_to is not null, pause.kind = 'queue' and pause.handed_to is null and not exists (
        select from only :SCHEMA._private_job_queues as queue
        where queue.queue_name = pause.name and queue.locked_by = pause.token))::text
from only :SCHEMA._private_pauses as pause
union all (
select 'schedule', case when schedule.next_at = '-infinity' then '0' else pg_catalog.date_part(
    'epoch', schedule.next_at - coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()))::text end
from only :SCHEMA._private_schedules as schedule
where schedule.next_at < 'infinity' order by schedule.next_at limit 1)"""

READ_CONTROL = f"/* gw:control */{_READ}"

# Notifies the worker's own channel, which proves that its listener receives notifications of other sessions. Not in the
# statement of the beat: it fails if the server's queue of notifications is full, and a beat must not fail.
SEND_PROOF = "/* gw:proof */ select pg_catalog.pg_notify(%(channel)s::text, '')"

# Both in one transaction: each beat needs both, and an idle worker has few other transactions.
READ_CONTROL_AND_PROVE = f"""/* gw:proof */{_READ}
union all select 'proof', pg_catalog.pg_notify(%(channel)s::text, '')::text"""

FORGET_STOPS = """/* gw:forget-stops */
delete from only :SCHEMA._private_stop_requests as request
using rows from (pg_catalog.unnest(%(ids)s::bigint[]), pg_catalog.unnest(%(tokens)s::text[])) as ended(id, token)
where request.job_id = ended.id and request.token = ended.token and not exists (
    select from only :SCHEMA._private_jobs as job where job.id = request.job_id and job.locked_by = request.token)
returning request.job_id"""


class RequestedStop(NamedTuple):
    """The request to stop the run of a claim, in the order of READ_CONTROL."""

    job_id: int
    token: str
    reason: str
    requested_by: str
    # False if the claim has ended without having been stopped.
    is_claimed: bool


class ReadPause(NamedTuple):
    """A pause as workers read it, in the order of READ_CONTROL."""

    # "queue", "task" or "flag".
    kind: str
    name: str
    # None: until it is resumed.
    seconds_left: float | None
    # Whether it is over, and a worker of another kind has the lock of the queue.
    is_handed_over: bool
    # Whether the row of the queue has lost the lock of the pause.
    is_unlocked: bool

    @property
    def holds(self) -> bool:
        return not self.is_handed_over and (self.seconds_left is None or self.seconds_left > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Everything that is asked of one worker."""

    stops: tuple[RequestedStop, ...]
    pauses: tuple[ReadPause, ...]
    # The seconds until a schedule is due; None if there is no schedule that will be due.
    until_schedule: float | None = None


def read_control(
    cursor: Any, worker_id: str, *, schema: str, now: datetime | None = None, proof_channel: str | None = None
) -> Control:
    """Return everything that is asked of this worker. ``now`` is the time of the jobs.

    With a channel, notify it. That fails if the notification queue of the server is full, and nothing is read.
    """
    query = READ_CONTROL if proof_channel is None else READ_CONTROL_AND_PROVE
    parameters = {"worker_id": worker_id, "now": now, "channel": proof_channel}
    cursor.execute(statement(query, schema), parameters)
    rows = [row for row in cursor.fetchall() if row[0] != "proof"]
    if not rows:
        return NOTHING_ASKED
    return Control(
        stops=tuple(RequestedStop(*json.loads(content)) for kind, content in rows if kind == "stop"),
        pauses=tuple(ReadPause(*json.loads(content)) for kind, content in rows if kind == "pause"),
        until_schedule=next((float(content) for kind, content in rows if kind == "schedule"), None),
    )


def send_proof(cursor: Any, channel: str, *, schema: str) -> None:
    """Notify the worker's own channel, without a read of what is asked of the worker."""
    cursor.execute(statement(SEND_PROOF, schema), {"channel": channel})


def forget_stops(cursor: Any, requests: Sequence[RequestedStop], *, schema: str) -> set[int]:
    """Delete requests whose claims have ended; return the ids of their jobs."""
    ids, tokens = [request.job_id for request in requests], [request.token for request in requests]
    cursor.execute(statement(FORGET_STOPS, schema), {"ids": int_array(ids), "tokens": text_array(tokens)})
    return {row[0] for row in cursor.fetchall()}


NOTHING_ASKED = Control(stops=(), pauses=())
