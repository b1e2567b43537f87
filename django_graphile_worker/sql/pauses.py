"""Pauses: tasks, queues and flags whose jobs wait. The functions of ``ddl/operators.sql`` change them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Self

from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.function_calls import MOMENT, moment
from django_graphile_worker.sql.statements import Cursor, statement


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


def _event(event: str, kind: str, name: str, by: str) -> str:
    """Return the expression that writes the event about the row ``pause`` of a statement, committed with it."""
    return f""":SCHEMA._private_add_event('{event}', 1, {name}, jsonb_build_object(
    'what', {kind}, 'name', {name}, 'by', nullif({by}, ''), 'reason', nullif(left(pause.stored_reason, 1000), ''),
    'until', case when pause.ends_at < 'infinity' then pause.ends_at end))"""


PAUSE = f"""/* gw:pause */
select {readable("pause.paused_at")}, {readable("pause.ends_at")}, pause.stored_reason, pause.stored_by,
    {_event("work_paused", "%s::text", "%s::text", "pause.stored_by")}, pause.was_paused
from :SCHEMA._private_pause(
    %s::text, %s::text, {MOMENT}, %s::text, %s::text, false, %s::timestamptz) as pause"""

RESUME = f"""/* gw:resume */
select {readable("pause.paused_at")}, {readable("pause.ends_at")}, pause.stored_reason, pause.stored_by,
    {_event("work_resumed", "%(kind)s::text", "%(name)s::text", "%(by)s::text")}
from :SCHEMA._private_resume(%(kind)s::text, %(name)s::text) as pause"""

IS_ACTIVE = """pause.handed_to is null
    -- A queue stays locked until a worker has ended its pause.
    and (pause.kind = 'queue' or pause.paused_until is null
        or pause.paused_until > coalesce(%(now)s::timestamptz, clock_timestamp()))"""
ACTIVE = f"""/* gw:pauses */
select pause.kind, pause.name, {readable("pause.paused_at")}, {readable("pause.paused_until")}, pause.reason,
    pause.paused_by
from :SCHEMA._private_pauses as pause
where {IS_ACTIVE}
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
        then {_event("work_paused", "'queue'::text", "%(queue_name)s::text", "pause.stored_by")} end,
    pause.was_paused
from :SCHEMA._private_jobs as job
cross join lateral :SCHEMA._private_pause(
    'queue', %(queue_name)s::text,
    coalesce(%(now)s::timestamptz, clock_timestamp()) + %(seconds)s::float8 * interval '1 second',
    %(reason)s::text, %(by)s::text, true, %(now)s::timestamptz) as pause
where job.id = %(job_id)s::bigint and job.locked_by = %(token)s::text"""

SETTLE = f"""/* gw:settle-pauses */
select pause.kind, pause.name, pause.paused_at, pause.ends_at, pause.stored_reason, pause.stored_by,
    {_event("work_resumed", "pause.kind", "pause.name", "''::text")}
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


def active(cursor: Cursor, *, schema: str, now: datetime | None = None) -> list[Pause]:
    """Return all pauses that hold, sorted by kind and name."""
    cursor.execute(statement(ACTIVE, schema), {"now": now})
    return [Pause.from_row(row) for row in cursor.fetchall()]


def is_known(cursor: Cursor, kind: PauseKind, name: str, *, schema: str) -> bool:
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


def settle(cursor: Any, *, schema: str, now: datetime | None = None) -> list[Pause]:
    """End the pauses whose time is over, and return them; set right what became of the locks of paused queues."""
    cursor.execute(statement(SETTLE, schema), {"now": now})
    return [Pause.from_row(row[:-1]) for row in cursor.fetchall()]
