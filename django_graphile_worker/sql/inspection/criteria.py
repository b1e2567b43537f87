"""Which jobs somebody looks for, and the conditions that say so."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol


class State(StrEnum):
    """Where a job is in its life. Each job is in exactly one of the first five."""

    READY = "ready"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    RETRYING = "retrying"
    FAILED = "failed"
    # Scheduled or retrying.
    WAITING = "waiting"
    # Retrying or failed for good; what an error group is made of.
    FAILING = "failing"
    ANY = "all"


# Each job is in one of these; in the order in which it goes through them, as far as it must.
STATES = (State.RUNNING, State.READY, State.SCHEDULED, State.RETRYING, State.FAILED)


class Placed(Protocol):
    """What tells a job's state."""

    @property
    def locked_at(self) -> Any: ...
    @property
    def is_available(self) -> bool: ...
    @property
    def is_due(self) -> bool: ...
    @property
    def attempts(self) -> int: ...


def state_of(job: Placed) -> State:
    """The one state that a job is in."""
    if job.locked_at is not None:
        return State.RUNNING
    if not job.is_available:
        return State.FAILED
    if job.is_due:
        return State.READY
    return State.RETRYING if job.attempts else State.SCHEDULED


NOT_TRIED = "job.attempts = 0"

# `attempts > 0` and `locked_at is null` are said even where they follow from the rest: a partial index can
# only be used by a statement that repeats its condition.
CONDITIONS = {
    State.READY: "job.is_available and job.run_at <= now()",
    # That a scheduled job has not been tried yet is in no index: see where_looked_at.
    State.SCHEDULED: "job.is_available and job.run_at > now()",
    State.WAITING: "job.is_available and job.run_at > now()",
    State.RUNNING: "job.locked_at is not null",
    State.RETRYING: "job.locked_at is null and job.attempts > 0 and job.is_available and job.run_at > now()",
    State.FAILED: "job.locked_at is null and job.attempts > 0 and not job.is_available",
    State.FAILING: "job.locked_at is null and job.attempts > 0",
    State.ANY: "true",
}


@dataclass(frozen=True, slots=True)
class Subquery:
    """A statement that selects the ids one may see, with its positional parameters."""

    text: str
    parameters: tuple[Any, ...]

    def named(self) -> tuple[str, dict[str, Any]]:
        """The same with named parameters, so that it can stand anywhere in a larger statement."""
        names = (f"restriction_{number}" for number in range(len(self.parameters)))
        text = re.sub("%[%s]", lambda found: "%%" if found[0] == "%%" else f"%({next(names)})s", self.text)
        return text, {f"restriction_{number}": value for number, value in enumerate(self.parameters)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """What is looked for: everything that is said must hold, any of the values in a tuple will do."""

    state: State = State.ANY
    ids: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    error_names: tuple[str, ...] = ()
    # Path and text of a value inside the payload.
    payload: tuple[tuple[tuple[str, ...], str], ...] = ()
    # Whether a value may be an object or an array, whose text holds whatever is in it.
    payload_branches: bool = True
    priority: tuple[int | None, int | None] = (None, None)
    run_at: tuple[datetime | None, datetime | None] = (None, None)
    created_at: tuple[datetime | None, datetime | None] = (None, None)
    unchanged_since: datetime | None = None
    # What the user may see at all; None is everything.
    within: Subquery | None = field(default=None)


class Clauses:
    """Conditions and their parameters, collected."""

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


# PostgreSQL's json holds escapes that its operators refuse to read, with an error that would end the search: NUL, and
# halves of surrogate pairs. First go escaped backslashes, which may stand before a harmless "u", and whole pairs.
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_READABLE = rf"""case when pg_catalog.strpos(job.payload::text, '\u') = 0 then true
    else not pg_catalog.regexp_replace(
        pg_catalog.regexp_replace(job.payload::text, '\\\\', '', 'g'), '{_PAIR}', '', 'g') ~ '\\u(0000|[dD][89a-fA-F])'
    end"""


def _of_readable(condition: str) -> str:
    """A condition on a payload that is only looked at where PostgreSQL can read it."""
    return f"case when {_READABLE} then {condition} else false end"


def where_in_order(criteria: Criteria) -> Clauses:
    """Conditions that an index answers along the way, so that they cost nothing: they go into each walk."""
    clauses = Clauses()
    clauses.add_range("job.priority", "priority", "int", criteria.priority)
    clauses.add_range("job.run_at", "run_at", "timestamptz", criteria.run_at)
    return clauses


def where_looked_at(criteria: Criteria) -> Clauses:
    """Conditions for which each job has to be looked at."""
    clauses = Clauses()
    if criteria.state is State.SCHEDULED:
        clauses.add(NOT_TRIED)
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
    """Tasks, queues and error names: found by an index in most walks, looked at in the others."""
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
