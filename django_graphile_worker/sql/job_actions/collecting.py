"""Collects the ids of all jobs that match a search, and stores them as the steps of an action.

The caller runs it in one transaction with one snapshot. So every job that matches at its beginning is collected, once,
whatever becomes of it while the steps change the jobs before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.criteria import STATES, Criteria, State
from django_graphile_worker.sql.inspection.job_search.level_walks import LIMITS
from django_graphile_worker.sql.inspection.job_search.orders import order_of
from django_graphile_worker.sql.job_actions.stored_actions import Owner
from django_graphile_worker.sql.statements import qualified, statement

# How many jobs a step changes.
STEP = 10_000
# How many jobs a statement reads.
MOST_READ = 200_000
# A page may leave out tasks beyond a limit; an action on all jobs must not, so its limits are null.
NO_LIMITS = dict.fromkeys(LIMITS)

TASKS = """/* gw:tasks */
select id, identifier from :SCHEMA._private_tasks
where %(tasks)s::text[] is null or identifier = any (%(tasks)s::text[]) order by id"""

NOW = "/* gw:now */ select now()"
ONE_SNAPSHOT = "/* gw:one-snapshot */ set transaction isolation level repeatable read"

# The rows are inserted only if the statement has read all jobs of a part that must be read as a whole.
COLLECT = """/* gw:collect */
with recursive {ctes},
numbered as (
    select matched.id, (row_number() over (order by {order}) - 1) / %(size)s::int as chunk from matched
    where not %(is_whole)s::bool or (select count(*) from candidate) < %(most)s::int),
inserted as (
    insert into :SCHEMA._private_action_steps (action_id, number, action, made_by, job_ids)
    select %(action_id)s::pg_catalog.uuid, %(first)s::int + numbered.chunk, %(action)s::text, %(made_by)s::text,
        array_agg(numbered.id)
    from numbered group by numbered.chunk
    returning cardinality(job_ids) as number)
select (select count(*) from inserted), (select coalesce(sum(inserted.number), 0) from inserted),
    (select count(*) from candidate), ({last})"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some of the jobs, which one index has in order."""

    criteria: Criteria
    # The number of its state and the id of its task, by which a later call continues.
    number: tuple[int, int] = (0, 0)
    # Whether it has the jobs of the following parts of its state: if there are few jobs, they are not needed.
    is_whole: bool = False


class Place(NamedTuple):
    """Where collecting continues: in which part, and after which job. Callers store it as a list."""

    number: tuple[int, int]
    token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """How many steps and jobs were collected, and where to continue if the time was over."""

    steps: int = 0
    jobs: int = 0
    next_place: Place | None = None


def beginning(cursor: Any) -> datetime:
    """Return the time of the beginning of an action."""
    cursor.execute(qualified(NOW))
    moment_of_beginning: datetime = cursor.fetchone()[0]
    return moment_of_beginning


def use_one_snapshot(cursor: Any) -> None:
    """Let all statements of the transaction, which has just begun, see the same rows."""
    cursor.execute(ONE_SNAPSHOT)


def parts(cursor: Any, criteria: Criteria, states: Sequence[State], *, schema: str) -> list[Part]:
    """Divide the jobs in these states that meet the criteria into parts; of mixed states if all are wanted."""
    is_named = bool(criteria.tasks or criteria.queues)
    is_mixed = criteria.state is State.ANY
    if criteria.ids or criteria.keys or (is_mixed and not is_named and len(states) == len(STATES)):
        return [Part(criteria=criteria)]
    cursor.execute(statement(TASKS, schema), {"tasks": list(criteria.tasks) or None})
    tasks = cursor.fetchall()
    wanted = [state for state in STATES if state in states] if is_mixed else [criteria.state]
    return [part for number, state in enumerate(wanted) for part in _of_state(criteria, state, number, tasks)]


def _of_state(criteria: Criteria, state: State, number: int, tasks: Sequence[Any]) -> list[Part]:
    of_state = replace(criteria, state=state)
    whole = Part(criteria=of_state, number=(number, -1), is_whole=state is not State.RUNNING)
    if state is State.RUNNING:
        return [whole]
    each = [Part(criteria=replace(of_state, tasks=(name,)), number=(number, task_id)) for task_id, name in tasks]
    return [whole, *each]


def collect(
    cursor: Any,
    owner: Owner,
    remaining: Sequence[Part],
    *,
    schema: str,
    first: int,
    is_over: Callable[[], bool],
    place: Place | None = None,
) -> Collected:
    """Store the jobs of the parts from the place on as steps, the first of which has the number ``first``."""
    steps = jobs = 0
    complete = -1
    for part in remaining:
        if (place is not None and part.number < place.number) or part.number[0] == complete:
            continue
        token = place.token if place is not None and part.number == place.number else None
        while True:
            if steps and is_over():
                return Collected(steps=steps, jobs=jobs, next_place=Place(part.number, token))
            found = _read(cursor, owner, part, token, schema=schema, first=first + steps)
            steps, jobs, token = steps + found.steps, jobs + found.jobs, found.last_token
            if part.is_whole or token is None:
                break
        if part.is_whole and token is None:
            # It had all jobs of its state.
            complete = part.number[0]
    return Collected(steps=steps, jobs=jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """How many steps and jobs a statement has stored, and after which job the next one begins."""

    steps: int
    jobs: int
    last_token: str | None


def _read(cursor: Any, owner: Owner, part: Part, token: str | None, *, schema: str, first: int) -> _Read:
    order = order_of(part.criteria)
    most = STEP if part.is_whole else MOST_READ
    ctes, parameters = search.matching(part.criteria, order, most=most, after=token)
    last = f"select {order.token('candidate')} from candidate order by {order.reversed().by('candidate')} limit 1"
    text = COLLECT.format(ctes=ctes, order=order.by("matched"), last=last)
    own = {"size": STEP, "is_whole": part.is_whole, "first": first, **owner._asdict()}
    cursor.execute(statement(text, schema), {**parameters, **NO_LIMITS, **own})
    steps, jobs, examined, last_token = cursor.fetchone()
    return _Read(steps=steps, jobs=int(jobs), last_token=last_token if examined >= most else None)
