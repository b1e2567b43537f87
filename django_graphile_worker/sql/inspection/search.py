"""Finding jobs for people: pages of any size of table, at one price."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from django_graphile_worker.attempts import attempts_made
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.inspection.criteria import (
    NOT_TRIED,
    STATES,
    Clauses,
    Criteria,
    State,
    state_of,
    where_looked_at,
    where_named,
)
from django_graphile_worker.sql.inspection.index_walks import TYPES, Order, order_of, walk
from django_graphile_worker.sql.schema import statement

# How many jobs a page looks at when each has to be looked at: of one range of an index, or of many at once.
MOST_EXAMINED = 5_000
MOST_EXAMINED_OF_MANY = 500
# How often a list looks on by itself before it tells what it has found so far.
MOST_LOOKS = 200

# Each candidate is looked up, and never the other way round; "offset 0" keeps the planner from turning it.
JOBS_OF_CANDIDATES = """cross join lateral (
    select * from :SCHEMA._private_jobs as job where job.id = candidate.id offset 0) as job"""

TOKEN = re.compile(r"[-+0-9: .~a-zA-Z]{1,120}")


class Found(NamedTuple):
    """The ids of a page, and where the next one begins (None: this was the last)."""

    ids: list[int]
    next_token: str | None
    # Nothing more was found among this many jobs, but there are others; None when all were looked at.
    examined: int | None
    # Where the page itself begins.
    first_token: str | None = None


def find(
    cursor: Any,
    criteria: Criteria,
    *,
    schema: str,
    limit: int,
    after: str | None = None,
    is_backwards: bool = False,
) -> Found:
    """The first jobs that meet the criteria, in their order or, backwards, the last ones in the reverse of it."""
    looked_at = looked_at_by(criteria)
    most = _budget(criteria, looked_at, limit)
    order = order_of(criteria)
    order = order.reversed() if is_backwards else order
    text, parameters = _statement(criteria, looked_at, order, most=most, wanted=limit + 1, after=after)
    cursor.execute(statement(text, schema), parameters)
    *matches, (_, examined, last_token) = cursor.fetchall()
    ids = [job_id for _, job_id, _ in matches]
    if len(ids) > limit:
        return Found(ids[:limit], matches[limit - 1][2], None, matches[0][2])
    is_cut_off = bool(looked_at.conditions) and examined >= most
    first_token = matches[0][2] if matches else None
    return Found(ids, last_token if is_cut_off else None, examined if is_cut_off else None, first_token)


def _budget(criteria: Criteria, looked_at: Clauses, limit: int) -> int:
    """How many jobs to look at. Where many ranges are merged, each has to be read that far."""
    if not looked_at.conditions:
        return limit + 1
    if looked_at.conditions == [NOT_TRIED]:
        # Few of the jobs that wait have been tried before.
        return 4 * limit
    is_one_range = criteria.tasks or criteria.queues or criteria.state in (State.ANY, State.RUNNING)
    return MOST_EXAMINED if is_one_range else MOST_EXAMINED_OF_MANY


def matching(
    criteria: Criteria, order: Order, *, most: int | None, after: str | None = None
) -> tuple[str, dict[str, Any]]:
    """The clauses `candidate` and `matched` for a larger statement: the next so many jobs, and which of them match."""
    return _common(criteria, looked_at_by(criteria), order, most, place_of(order, after))


def looked_at_by(criteria: Criteria) -> Clauses:
    """Conditions that no walk sees to, so that each job has to be looked at."""
    clauses = where_looked_at(criteria)
    if not walk(criteria).covers_names:
        named = where_named(criteria)
        clauses.conditions += named.conditions
        clauses.parameters |= named.parameters
    return clauses


def _common(
    criteria: Criteria, looked_at: Clauses, order: Order, most: int | None, place: dict[str, str] | None
) -> tuple[str, dict[str, Any]]:
    way = walk(criteria, order, has_place=place is not None)
    ctes = f"""{way.ctes + "," if way.ctes else ""}
    candidate as materialized (
        select * from ({way.body}) as candidate order by {order.by("candidate")} limit %(most)s),
    matched as (
        select candidate.* from candidate {JOBS_OF_CANDIDATES if looked_at.conditions else ""}
        where {looked_at.text()} order by {order.by("candidate")})"""
    return ctes, way.parameters | looked_at.parameters | (place or {}) | {"most": most}


def _statement(
    criteria: Criteria, looked_at: Clauses, order: Order, *, most: int, wanted: int, after: str | None
) -> tuple[str, dict[str, Any]]:
    ctes, parameters = _common(criteria, looked_at, order, most, place_of(order, after))
    last = f"select {order.token('candidate')} from candidate order by {order.reversed().by('candidate')} limit 1"
    text = f"""/* gw:find-jobs */
    with recursive {ctes},
    page as (select matched.*, {order.token("matched")} as token from matched limit %(wanted)s)
    (select 'match', page.id, page.token from page order by {order.by("page")})
    union all
    select 'end', (select count(*) from candidate), ({last})"""
    return text, parameters | {"wanted": wanted}


def place_of(order: Order, token: str | None) -> dict[str, str] | None:
    """The values of a token, or None when it is none of ours."""
    columns = order.columns
    parts = token.split("~") if token and TOKEN.fullmatch(token) else []
    if len(parts) != len(columns):
        return None
    if not all(_PLACES[TYPES[column]].fullmatch(part) for column, part in zip(columns, parts, strict=True)):
        return None
    return {f"after_{column}": part for column, part in zip(columns, parts, strict=True)}


_PLACES = {
    "int": re.compile(r"-?[0-9]{1,5}"),
    "bigint": re.compile(r"[0-9]{1,18}"),
    "timestamptz": re.compile(
        r"-?infinity|[0-9]{4,6}-[01][0-9]-[0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
        r"[-+][0-9]{2}(:[0-9]{2}){0,2}( BC)?"
    ),
}


class JobRow(NamedTuple):
    """A job as a list shows it: neither the payload nor the whole error is read."""

    id: int
    task_identifier: str | None
    queue_name: str | None
    priority: int
    run_at: Any
    attempts: int
    max_attempts: int
    created_at: Any
    updated_at: Any
    key: str | None
    locked_at: Any
    locked_by: str | None
    flags_text: str | None
    error: str | None
    is_available: bool
    is_due: bool

    @property
    def state(self) -> State:
        return state_of(self)

    @property
    def attempts_made(self) -> int:
        """How often it was really tried: a job that was given up counts as one that used up its attempts."""
        return attempts_made(self.attempts, self.max_attempts, self.error)

    @property
    def moment(self) -> Any:
        """The time that matters: since when it runs, when it failed for good, when it is due."""
        if self.state is State.RUNNING:
            return self.locked_at
        return self.updated_at if self.state is State.FAILED else self.run_at


ROWS = f"""/* gw:job-rows */
select job.id, task.identifier, queue.queue_name, job.priority, {readable("job.run_at")}, job.attempts,
    job.max_attempts, {readable("job.created_at")}, {readable("job.updated_at")}, job.key,
    {readable("job.locked_at")}, :SCHEMA._private_worker_of(job.locked_by), left(job.flags::text, 1000),
    left(job.last_error, 500), job.is_available, job.run_at <= now()
from :SCHEMA._private_jobs as job
left join :SCHEMA._private_tasks as task on task.id = job.task_id
left join :SCHEMA._private_job_queues as queue on queue.id = job.job_queue_id
where job.id = any (%(ids)s::bigint[])"""


def rows(cursor: Any, ids: Sequence[int], *, schema: str) -> list[JobRow]:
    """What a list shows of these jobs, in this order; those that are gone are left out."""
    cursor.execute(statement(ROWS, schema), {"ids": list(ids)})
    found = {row[0]: JobRow._make(row) for row in cursor.fetchall()}
    return [found[job_id] for job_id in ids if job_id in found]


class Listed(NamedTuple):
    """The first jobs of a list; whether there are more; and whether it was given up on before the end."""

    rows: list[JobRow]
    has_more: bool
    is_cut_off: bool


def list_jobs(cursor: Any, criteria: Criteria, *, schema: str, limit: int) -> Listed:
    """The first jobs that meet the criteria, however many others lie between them.

    All jobs of a task or a queue lie in no order together, so they come one state after the other.
    """
    is_mixed = criteria.state is State.ANY and not criteria.ids and not criteria.keys
    states = STATES if is_mixed and (criteria.tasks or criteria.queues) else (criteria.state,)
    ids: list[int] = []
    is_cut_off = False
    for state in states:
        if len(ids) <= limit:
            found, is_given_up = _find_on(cursor, replace(criteria, state=state), schema, limit + 1 - len(ids))
            ids += found
            is_cut_off |= is_given_up
    return Listed(rows(cursor, ids[:limit], schema=schema), len(ids) > limit, is_cut_off)


def _find_on(cursor: Any, criteria: Criteria, schema: str, limit: int) -> tuple[list[int], bool]:
    """So many ids, looking on as long as there is something to look at and hope."""
    ids: list[int] = []
    token = None
    for _ in range(MOST_LOOKS):
        found = find(cursor, criteria, schema=schema, limit=limit - len(ids), after=token)
        ids, token = ids + found.ids, found.next_token
        if len(ids) >= limit or token is None:
            return ids, False
    return ids, True
