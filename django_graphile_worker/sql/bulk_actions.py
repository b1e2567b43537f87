"""Change all jobs that meet some criteria, through the functions of the schema.

Each step is one statement, which finds some jobs and passes their ids to a function. A few jobs take one step. Millions
of jobs take many steps, each in its own transaction of the caller: rows are locked only during a step, claims skip only
the locked rows of a step, and finished steps stay committed. A changed job may move to a place that a later step reads,
so each step leaves out the jobs that have changed since the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.sql import cancellations
from django_graphile_worker.sql.cancellations import Cancellation, Fate
from django_graphile_worker.sql.function_calls import moment
from django_graphile_worker.sql.inspection import search
from django_graphile_worker.sql.inspection.criteria import STATES, Criteria, State
from django_graphile_worker.sql.inspection.index_walks import LIMITS
from django_graphile_worker.sql.inspection.orders import order_of
from django_graphile_worker.sql.jobs import FORGET_CANCELLATIONS, Changes
from django_graphile_worker.sql.result_keeping import (
    CALLED,
    FAILED_BY_OPERATOR,
    IS_RECORDED,
    NOTHING_KEPT,
    RECORD_OPERATOR,
    REMOVED_BY_OPERATOR,
    ResultKeeping,
)
from django_graphile_worker.sql.schema import statement
from django_graphile_worker.sql.search_path import qualified

# How many jobs a step reads.
STEP = 10_000
# How many ids a step returns.
MOST_NAMED = 1_000

FUNCTIONS = {
    "complete": ":SCHEMA.complete_jobs(chosen.ids)",
    "fail": ":SCHEMA.permanently_fail_jobs(chosen.ids, %(reason)s::text)",
    "reschedule": """:SCHEMA.reschedule_jobs(
        chosen.ids, coalesce(%(run_at)s::timestamptz, now() + %(delay)s::float8 * interval '1 second'),
        %(new_priority)s::int, %(attempts)s::int, %(max_attempts)s::int)""",
}

# Clauses of the statement that run in addition to a function; they read the rows of the function from ``job``.
CLAUSES = {"reschedule": FORGET_CANCELLATIONS}

# The functions that end jobs: what they ended is recorded.
ENDING = frozenset({"complete", "fail"})

# A page may leave out tasks beyond a limit; an action on all jobs must not, so its limits are null.
NO_LIMITS = dict.fromkeys(LIMITS)

SILENCE = "/* gw:silence */ select set_config('graphile_worker.notify', 'off', true)"
NOW = "/* gw:now */ select now()"
TASKS = """/* gw:tasks */
select id, identifier from :SCHEMA._private_tasks
where %(tasks)s::text[] is null or identifier = any (%(tasks)s::text[]) order by id"""


class Call(Frozen):
    """A function of the schema, and its arguments beside the ids."""

    function: str
    parameters: Mapping[str, Any]
    is_silent: bool = False


def complete(keeping: ResultKeeping = NOTHING_KEPT) -> Call:
    return Call(function="complete", parameters={"outcome": REMOVED_BY_OPERATOR, **keeping.parameters()})


def fail(reason: str | None, keeping: ResultKeeping = NOTHING_KEPT) -> Call:
    return Call(function="fail", parameters={"reason": reason, "outcome": FAILED_BY_OPERATOR, **keeping.parameters()})


def cancel(cancellation: Cancellation) -> CancelCall:
    return CancelCall(cancellation=cancellation)


def reschedule(changes: Changes, *, notify: bool) -> Call:
    run_at, delay = moment(changes.run_at)
    parameters = {
        "run_at": run_at,
        "delay": delay,
        "new_priority": changes.priority,
        "attempts": changes.attempts,
        "max_attempts": changes.max_attempts,
    }
    return Call(function="reschedule", parameters=parameters, is_silent=not notify)


class CancelCall(Frozen):
    """The cancellation of jobs, which may also run."""

    cancellation: Cancellation


class Part(Frozen):
    """Some of the jobs, which one index holds in order, so that each step continues where the last step ended."""

    criteria: Criteria
    # The number of its state and the id of its task. The parts of a task that was deleted meanwhile are skipped.
    number: tuple[int, int] = (0, 0)
    # Whether this part has the jobs of all following parts: if there are few jobs, one step of it is enough.
    is_whole: bool = False


class Place(NamedTuple):
    """Where the next step begins: in which part, and after which job. Callers store it as a list."""

    number: tuple[int, int]
    token: str | None


class Step(Frozen):
    """The result of a step: how many jobs were found and changed, the first ids, and where the next step begins."""

    found: int = 0
    changed: int = 0
    ids: Sequence[int] = ()
    next_place: Place | None = None
    # What became of each job that a step cancelled; empty for other actions.
    fates: Sequence[Fate] = ()


def parts(cursor: Any, criteria: Criteria, *, schema: str) -> list[Part]:
    """Divide the jobs that meet the criteria into parts."""
    is_mixed = criteria.state is State.ANY
    is_named = bool(criteria.tasks or criteria.queues)
    if criteria.ids or criteria.keys or criteria.state is State.RUNNING or (is_mixed and not is_named):
        return [Part(criteria=criteria)]
    cursor.execute(statement(TASKS, schema), {"tasks": list(criteria.tasks) or None})
    tasks = cursor.fetchall()
    states = STATES if is_mixed else (criteria.state,)
    found = [
        Part(criteria=replace(criteria, state=state, tasks=(identifier,)), number=(number, task_id))
        for number, state in enumerate(states)
        for task_id, identifier in tasks
    ]
    return found if is_mixed or len(found) == 1 else [Part(criteria=criteria, is_whole=True), *found]


def beginning(cursor: Any) -> datetime:
    """Return the time of the beginning: jobs that have changed since then are not changed again."""
    cursor.execute(qualified(NOW))
    moment_of_beginning: datetime = cursor.fetchone()[0]
    return moment_of_beginning


def step(
    cursor: Any,
    call: Call | CancelCall,
    remaining: Sequence[Part],
    place: Place | None,
    *,
    schema: str,
    since: datetime | None,
    size: int | None = STEP,
) -> Step:
    """Do the next step; without a size, do everything in one step.

    A silent call switches off notifications until the caller's transaction ends.
    """
    if isinstance(call, Call) and call.is_silent:
        cursor.execute(qualified(SILENCE))
    ahead = [part for part in remaining if place is None or part.number >= place.number]
    if not ahead:
        return Step()
    part = ahead[0]
    token = place.token if place and place.number == part.number else None
    # Nothing was changed before the first step.
    criteria = replace(part.criteria, unchanged_since=since if place else None)
    text, parameters = _statement(call, criteria, token, size)
    cursor.execute(statement(text, schema), {**parameters, **NO_LIMITS})
    found, changed, ids, examined, last_token = cursor.fetchone()
    is_cut_off = size is not None and examined >= size
    next_place = _next_place(part, ahead[1:], last_token if is_cut_off else None)
    if isinstance(call, CancelCall):
        return _cancel(cursor, ids, call.cancellation, next_place, schema=schema)
    return Step(found=found, changed=changed, ids=ids, next_place=next_place)


def _cancel(
    cursor: Any, ids: Sequence[int], cancellation: Cancellation, next_place: Place | None, *, schema: str
) -> Step:
    fates = cancellations.cancel_jobs(cursor, ids, cancellation, schema=schema) if ids else []
    cancelled = [fate.job_id for fate in fates if fate.fate in (cancellations.REMOVED, cancellations.STOPPING)]
    first = cancelled[:MOST_NAMED]
    return Step(found=len(ids), changed=len(cancelled), ids=first, next_place=next_place, fates=fates)


def _next_place(part: Part, following: Sequence[Part], token: str | None) -> Place | None:
    if part.is_whole:
        return Place(following[0].number, None) if token and following else None
    if token:
        return Place(part.number, token)
    return Place(following[0].number, None) if following else None


def _statement(
    call: Call | CancelCall, criteria: Criteria, token: str | None, size: int | None
) -> tuple[str, dict[str, Any]]:
    order = order_of(criteria)
    ctes, parameters = search.matching(criteria, order, most=size, after=token)
    last = f"select {order.token('candidate')} from candidate order by {order.reversed().by('candidate')} limit 1"
    if isinstance(call, CancelCall):
        text = f"""/* gw:cancel-all */
        with recursive {ctes}
        select 0, 0, array(select matched.id from matched), (select count(*) from candidate), ({last})"""
        return text, parameters
    also = f", {CLAUSES[call.function]}" if call.function in CLAUSES else ""
    is_recorded = call.function in ENDING
    text = f"""/* gw:{call.function}-all */
    with recursive {ctes},
    chosen as materialized (select array(select matched.id from matched) as ids),
    {CALLED} as materialized (select job from chosen cross join lateral {FUNCTIONS[call.function]} as job),
    job as (select ({CALLED}.job).id from {CALLED}){also}{f", {RECORD_OPERATOR}" if is_recorded else ""}
    select (select cardinality(ids) from chosen), count(*),
        coalesce((array_agg(id order by id))[1:{MOST_NAMED}], '{{}}'),
        (select count(*) from candidate), ({last})
    from job{f" where {IS_RECORDED}" if is_recorded else ""}"""
    return text, parameters | dict(call.parameters)
