"""The criteria of a search for jobs, and the conditions of the states. ``row_conditions`` has the other conditions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from django_graphile_worker.sql import jobs


class State(StrEnum):
    """The state of a job. Each job is in exactly one of the first six; the others combine them."""

    READY = "ready"
    # Due, and waits for a limit: `sql.jobs.JOIN_PARKED`.
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
    State.READY: jobs.IS_READY,
    State.LIMITED: jobs.IS_PARKED,
    # That a scheduled job was not tried yet is in no index: where_looked_at() adds that condition.
    State.SCHEDULED: jobs.IS_WAITING,
    State.WAITING: jobs.IS_WAITING,
    State.RUNNING: jobs.IS_LOCKED,
    State.RETRYING: jobs.IS_RETRYING,
    State.FAILED: jobs.IS_PERMANENTLY_FAILED,
    State.FAILING: jobs.HAS_FAILED,
    State.ANY: "true",
}

# The states of STATES that a state combines. Jobs that failed are ready when they are due again.
COMBINED = {
    State.WAITING: frozenset({State.SCHEDULED, State.RETRYING}),
    State.FAILING: frozenset({State.READY, State.LIMITED, State.RETRYING, State.FAILED}),
    State.ANY: frozenset(STATES),
}


def included_states(state: State) -> frozenset[State]:
    """Return the states of STATES that a job of the state can be in."""
    return COMBINED.get(state, frozenset({state}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subquery:
    """A statement that selects the ids of the jobs that a user may see, with its positional parameters."""

    text: str
    parameters: tuple[Any, ...]

    def named(self) -> tuple[str, dict[str, Any]]:
        """Return the statement with named parameters, so that it fits anywhere into a larger statement."""
        names = (f"restriction_{number}" for number in range(len(self.parameters)))
        text = re.sub("%[%s]", lambda found: "%%" if found[0] == "%%" else f"%({next(names)})s", self.text)
        return text, {f"restriction_{number}": value for number, value in enumerate(self.parameters)}


Bounds = tuple[int | None, int | None]
UNBOUNDED: Bounds = (None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """The criteria of a search: a job must meet all that are given, and match any of the values in a tuple.

    Of ``flags``, ``errors``, ``payload``, ``payload_texts`` and ``patterns``, a job must match each.
    """

    state: State = State.ANY
    # Conditions on the state, in addition to the state of the list.
    states: tuple[State, ...] = ()
    ids: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    excluded_tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    error_names: tuple[str, ...] = ()
    # The paths and texts of values inside the payload.
    payload: tuple[tuple[tuple[str, ...], str], ...] = ()
    # Texts anywhere in the payload.
    payload_texts: tuple[str, ...] = ()
    # Names with wildcards: a key of ``row_conditions.NAMES``, and texts for LIKE of which the name must match one.
    patterns: tuple[tuple[str, tuple[str, ...]], ...] = ()
    priority: Bounds = UNBOUNDED
    attempts: Bounds = UNBOUNDED
    run_at: tuple[datetime | None, datetime | None] = (None, None)
    created_at: tuple[datetime | None, datetime | None] = (None, None)
    unchanged_since: datetime | None = None
    # The jobs that the user may see; None means all.
    within: Subquery | None = None
    # Of each of these groups, a job must meet at least one.
    any_of: tuple[tuple[Criteria, ...], ...] = ()
    # A job must meet none of these.
    none_of: tuple[Criteria, ...] = ()


def like_pattern(text: str, *, is_part: bool = False) -> str:
    """Return the text for LIKE: ``*`` matches any characters, every other character itself."""
    escaped = re.sub(r"([\\%_])", r"\\\1", text)
    pattern = re.sub(r"\*+", "%", escaped)
    return f"%{pattern}%" if is_part else pattern
