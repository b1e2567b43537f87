"""Doing something with all jobs that meet some criteria, through the schema's functions, never around them.

Each step is one statement, which finds some jobs and hands them to a function. What there is to do is done in
one step when it is not much. Millions are done in many, each of them a transaction of the caller's own: rows
are locked for as long as a step takes, claims never have to step over more of them than that, and what is done
stays done. Between steps jobs change their places, so a step leaves out what has changed since the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.sql.inspection import search
from django_graphile_worker.sql.inspection.criteria import STATES, Criteria, State
from django_graphile_worker.sql.inspection.index_walks import LIMITS, order_of
from django_graphile_worker.sql.jobs import Changes, moment
from django_graphile_worker.sql.qualification import qualified
from django_graphile_worker.sql.schema import statement

# How many jobs a step looks at.
STEP = 10_000
# How many ids of a step are told.
MOST_NAMED = 1_000

FUNCTIONS = {
    "complete": ":SCHEMA.complete_jobs(chosen.ids)",
    "fail": ":SCHEMA.permanently_fail_jobs(chosen.ids, %(reason)s::text)",
    "reschedule": """:SCHEMA.reschedule_jobs(
        chosen.ids, coalesce(%(run_at)s::timestamptz, now() + %(delay)s::float8 * interval '1 second'),
        %(new_priority)s::int, %(attempts)s::int, %(max_attempts)s::int)""",
}

# A page may leave out the two-thousandth task; all that match are all.
EVERYTHING = dict.fromkeys(LIMITS)

SILENCE = "/* gw:silence */ select set_config('graphile_worker.notify', 'off', true)"
NOW = "/* gw:now */ select now()"
TASKS = """/* gw:tasks */
select id, identifier from :SCHEMA._private_tasks
where %(tasks)s::text[] is null or identifier = any (%(tasks)s::text[]) order by id"""


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the schema, and what it is told about every job."""

    function: str
    parameters: Mapping[str, Any]
    is_silent: bool = False


COMPLETE = Call("complete", {})


def fail(reason: str | None) -> Call:
    return Call("fail", {"reason": reason})


def reschedule(changes: Changes, *, notify: bool) -> Call:
    run_at, delay = moment(changes.run_at)
    parameters = {
        "run_at": run_at,
        "delay": delay,
        "new_priority": changes.priority,
        "attempts": changes.attempts,
        "max_attempts": changes.max_attempts,
    }
    return Call("reschedule", parameters, is_silent=not notify)


class Part(NamedTuple):
    """Jobs that lie in an order together, in which steps can go from one to the next."""

    criteria: Criteria
    # Which part it is; those of a task that is gone by then are passed over.
    number: tuple[int, int] = (0, 0)
    # All the parts that follow, looked at together: enough when there is not much to do.
    is_whole: bool = False


class Place(NamedTuple):
    """How far one has come: in which part, and after which job."""

    number: tuple[int, int]
    token: str | None


class Step(NamedTuple):
    """What became of a step: jobs found, jobs changed, the ids of the first of them, and where to go on."""

    found: int
    changed: int
    ids: list[int]
    next_place: Place | None


def parts(cursor: Any, criteria: Criteria, *, schema: str) -> list[Part]:
    """All jobs that meet the criteria, in parts."""
    is_mixed = criteria.state is State.ANY
    is_named = bool(criteria.tasks or criteria.queues)
    if criteria.ids or criteria.keys or criteria.state is State.RUNNING or (is_mixed and not is_named):
        return [Part(criteria)]
    cursor.execute(statement(TASKS, schema), {"tasks": list(criteria.tasks) or None})
    tasks = cursor.fetchall()
    states = STATES if is_mixed else (criteria.state,)
    found = [
        Part(replace(criteria, state=state, tasks=(identifier,)), (number, task_id))
        for number, state in enumerate(states)
        for task_id, identifier in tasks
    ]
    return found if is_mixed or len(found) == 1 else [Part(criteria, is_whole=True), *found]


def beginning(cursor: Any) -> datetime:
    """What has changed since then is not changed again."""
    cursor.execute(qualified(NOW))
    moment_of_beginning: datetime = cursor.fetchone()[0]
    return moment_of_beginning


def step(
    cursor: Any,
    call: Call,
    remaining: Sequence[Part],
    place: Place | None,
    *,
    schema: str,
    since: datetime | None,
    size: int | None = STEP,
) -> Step:
    """Do the next step; without a size, all that there is in one. Silence lasts for the caller's transaction."""
    if call.is_silent:
        cursor.execute(qualified(SILENCE))
    ahead = [part for part in remaining if place is None or part.number >= place.number]
    if not ahead:
        return Step(0, 0, [], None)
    part = ahead[0]
    token = place.token if place and place.number == part.number else None
    # Before the first step nothing can have been changed by it.
    criteria = replace(part.criteria, unchanged_since=since if place else None)
    text, parameters = _statement(call, criteria, token, size)
    cursor.execute(statement(text, schema), {**parameters, **EVERYTHING, **call.parameters})
    found, changed, ids, examined, last_token = cursor.fetchone()
    is_cut_off = size is not None and examined >= size
    return Step(found, changed, ids, _next_place(part, ahead[1:], last_token if is_cut_off else None))


def _next_place(part: Part, following: Sequence[Part], token: str | None) -> Place | None:
    if part.is_whole:
        return Place(following[0].number, None) if token and following else None
    if token:
        return Place(part.number, token)
    return Place(following[0].number, None) if following else None


def _statement(call: Call, criteria: Criteria, token: str | None, size: int | None) -> tuple[str, dict[str, Any]]:
    order = order_of(criteria)
    ctes, parameters = search.matching(criteria, order, most=size, after=token)
    last = f"select {order.token('candidate')} from candidate order by {order.reversed().by('candidate')} limit 1"
    text = f"""/* gw:{call.function}-all */
    with recursive {ctes},
    chosen as materialized (select array(select matched.id from matched) as ids),
    changed as (select job.id from chosen cross join lateral {FUNCTIONS[call.function]} as job)
    select (select cardinality(ids) from chosen), count(*),
        coalesce((array_agg(id order by id))[1:{MOST_NAMED}], '{{}}'),
        (select count(*) from candidate), ({last})
    from changed"""
    return text, parameters
