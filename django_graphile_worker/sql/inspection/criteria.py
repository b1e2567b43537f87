"""The criteria of a search for jobs, and the SQL conditions that express them."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.sql import conditions


class State(StrEnum):
    """The state of a job. Each job is in exactly one of the first six; the others combine them."""

    READY = "ready"
    # Due, and waits for a limit: `sql.parked_jobs`.
    LIMITED = "limited"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    RETRYING = "retrying"
    FAILED = "failed"
    # Scheduled or retrying.
    WAITING = "waiting"
    # Retrying or permanently failed; an error group consists of such jobs.
    FAILING = "failing"
    ANY = "all"


# Each job is in one of these states, which are in the order in which a list shows them.
STATES = (State.RUNNING, State.READY, State.LIMITED, State.SCHEDULED, State.RETRYING, State.FAILED)


class HasState(Protocol):
    """The attributes that determine a job's state."""

    @property
    def locked_at(self) -> Any: ...
    @property
    def is_available(self) -> bool: ...
    @property
    def is_due(self) -> bool: ...
    @property
    def is_limited(self) -> bool: ...
    @property
    def attempts(self) -> int: ...


def state_of(job: HasState) -> State:
    """Return the state of a job, one of ``STATES``."""
    if job.locked_at is not None:
        return State.RUNNING
    if not job.is_available:
        return State.FAILED
    if job.is_limited:
        return State.LIMITED
    if job.is_due:
        return State.READY
    return State.RETRYING if job.attempts else State.SCHEDULED


CONDITIONS = {
    State.READY: conditions.IS_READY,
    State.LIMITED: conditions.IS_PARKED,
    # That a scheduled job was not tried yet is in no index: where_looked_at() adds that condition.
    State.SCHEDULED: conditions.IS_WAITING,
    State.WAITING: conditions.IS_WAITING,
    State.RUNNING: conditions.IS_LOCKED,
    State.RETRYING: conditions.IS_RETRYING,
    State.FAILED: conditions.IS_PERMANENTLY_FAILED,
    State.FAILING: conditions.HAS_FAILED,
    State.ANY: "true",
}


class Subquery(Frozen):
    """A statement that selects the ids of the jobs that a user may see, with its positional parameters."""

    text: str
    parameters: tuple[Any, ...]

    def named(self) -> tuple[str, dict[str, Any]]:
        """Return the statement with named parameters, so that it fits anywhere into a larger statement."""
        names = (f"restriction_{number}" for number in range(len(self.parameters)))
        text = re.sub("%[%s]", lambda found: "%%" if found[0] == "%%" else f"%({next(names)})s", self.text)
        return text, {f"restriction_{number}": value for number, value in enumerate(self.parameters)}


class Criteria(Frozen):
    """The criteria of a search: a job must meet all that are given, and match any of the values in a tuple."""

    state: State = State.ANY
    ids: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    error_names: tuple[str, ...] = ()
    # The paths and texts of values inside the payload.
    payload: tuple[tuple[tuple[str, ...], str], ...] = ()
    # Whether such a value may be an object or an array. Its text includes all values inside it, so a user that sees
    # payloads redacted must not search for it.
    payload_branches: bool = True
    priority: tuple[int | None, int | None] = (None, None)
    run_at: tuple[datetime | None, datetime | None] = (None, None)
    created_at: tuple[datetime | None, datetime | None] = (None, None)
    unchanged_since: datetime | None = None
    # The jobs that the user may see; None means all.
    within: Subquery | None = None


class Clauses:
    """A collection of conditions and their parameters."""

    def __init__(self) -> None:
        self.conditions: list[str] = []
        self.parameters: dict[str, Any] = {}

    def add(self, condition: str, **parameters: Any) -> None:
        self.conditions.append(condition)
        self.parameters |= parameters

    def add_range(self, column: str, name: str, kind: str, bounds: tuple[Any, Any]) -> None:
        low, high = bounds
        if low is not None:
            self.add(f"{column} >= %({name}_low)s::{kind}", **{f"{name}_low": low})
        if high is not None:
            self.add(f"{column} <= %({name}_high)s::{kind}", **{f"{name}_high": high})

    def text(self) -> str:
        return " and ".join(self.conditions) or "true"


# A value of type json may contain escapes for which its operators raise an error, which would end the search: NUL, and
# halves of surrogate pairs. The expression removes escaped backslashes, which may precede a harmless "u", and whole
# pairs; then it searches for such escapes.
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_READABLE = rf"""case when pg_catalog.strpos(job.payload::text, '\u') = 0 then true
    else not pg_catalog.regexp_replace(
        pg_catalog.regexp_replace(job.payload::text, '\\\\', '', 'g'), '{_PAIR}', '', 'g') ~ '\\u(0000|[dD][89a-fA-F])'
    end"""


def _of_readable(condition: str) -> str:
    """Return a condition on the payload that is evaluated only if PostgreSQL can read the payload."""
    return f"case when {_READABLE} then {condition} else false end"


def where_in_order(criteria: Criteria, *, run_at: str = "job.run_at") -> Clauses:
    """Return the conditions on columns of the indexes: each walk can include them at no cost.

    ``run_at`` is the column, or the expression, that has the due time.
    """
    clauses = Clauses()
    clauses.add_range("job.priority", "priority", "int", criteria.priority)
    clauses.add_range(run_at, "run_at", "timestamptz", criteria.run_at)
    return clauses


def where_looked_at(criteria: Criteria) -> Clauses:
    """Return the conditions for which the row of each job has to be read."""
    clauses = Clauses()
    if criteria.state is State.SCHEDULED:
        clauses.add(conditions.NOT_TRIED)
    if criteria.flags:
        clauses.add("job.flags ?& %(flags)s::text[]", flags=list(criteria.flags))
    for number, text in enumerate(criteria.errors):
        clauses.add(
            f"position(lower(%(error_{number})s::text) in lower(job.last_error)) > 0", **{f"error_{number}": text}
        )
    for number, (path, text) in enumerate(criteria.payload):
        names = {f"path_{number}": list(path), f"value_{number}": text}
        clauses.add(_of_readable(f"job.payload #>> %(path_{number})s::text[] = %(value_{number})s::text"), **names)
        if not criteria.payload_branches:
            kind = f"json_typeof(job.payload #> %(path_{number})s::text[])"
            clauses.add(_of_readable(f"{kind} not in ('object', 'array')"))
    clauses.add_range("job.created_at", "created_at", "timestamptz", criteria.created_at)
    if criteria.unchanged_since is not None:
        clauses.add("job.updated_at < %(unchanged_since)s::timestamptz", unchanged_since=criteria.unchanged_since)
    if criteria.workers:
        clauses.add(
            ":SCHEMA._private_worker_of(job.locked_by) = any (%(workers)s::text[])", workers=list(criteria.workers)
        )
    if criteria.within is not None:
        text, parameters = criteria.within.named()
        clauses.add(f"job.id in ({text})", **parameters)
    return clauses


def where_named(criteria: Criteria) -> Clauses:
    """Return the conditions on tasks, queues and error names: most walks find these by an index, others read rows."""
    clauses = Clauses()
    if criteria.tasks:
        clauses.add(
            "job.task_id in (select id from :SCHEMA._private_tasks where identifier = any (%(tasks)s::text[]))",
            tasks=list(criteria.tasks),
        )
    if criteria.queues:
        clauses.add(
            "job.job_queue_id in ("
            "select id from :SCHEMA._private_job_queues where queue_name = any (%(queues)s::text[]))",
            queues=list(criteria.queues),
        )
    if criteria.error_names:
        clauses.add(
            ":SCHEMA._private_error_name(job.last_error) = any (%(error_names)s::text[])",
            error_names=list(criteria.error_names),
        )
    return clauses
