"""How many jobs are in each state. Counting ends at a limit, so that it takes no longer with ten million jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.criteria import STATES, Criteria, State
from django_graphile_worker.sql.inspection.job_search.index_walks import looked_at_by, renamed, walk
from django_graphile_worker.sql.inspection.job_search.orders import Walk
from django_graphile_worker.sql.inspection.job_search.priority_walk import walk_by_priority
from django_graphile_worker.sql.inspection.job_search.segments import segments
from django_graphile_worker.sql.inspection.job_search.walk_choice import is_narrowed
from django_graphile_worker.sql.jobs import NOT_TRIED
from django_graphile_worker.sql.statements import statement

# "5,000+" is as useful to a reader as the exact number.
MOST_COUNTED = 5_000
# How many jobs of each state count_list() reads if it has to read rows.
MOST_LOOKED_AT = 300
# The limit of a second search for the next scheduled job, which reads four times as many jobs.
MOST_SKIPPED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """A number of jobs; with ``is_more``, there are more jobs than this number."""

    number: int
    is_more: bool


def count_states(cursor: Any, criteria: Criteria, *, schema: str, most: int = MOST_COUNTED) -> dict[State, Count]:
    """Return how many of the jobs are in each state, counted up to ``most``, with one statement.

    A state is left out if the statement would have to read the row of each job, because there is no limit for that.
    """
    parts: dict[State, str] = {}
    parameters: dict[str, Any] = {"most": most + 1}
    for state in STATES:
        each = replace(criteria, state=state)
        if looked_at_by(each).conditions not in ([], [NOT_TRIED]):
            continue
        parts[state], more = _count(each)
        parameters |= more
    if not parts:
        return {}
    cursor.execute(statement(f"/* gw:count-jobs */ select {', '.join(parts.values())}", schema), parameters)
    found = zip(parts, cursor.fetchone(), strict=True)
    return {state: Count(number=min(number, most), is_more=examined > most) for state, (number, examined) in found}


def count_list(cursor: Any, criteria: Criteria, *, schema: str, most: int = MOST_COUNTED) -> Count:
    """Return how many jobs a list shows. If rows have to be read, only a few of each state are.

    ``is_more`` says that there may be more jobs.
    """
    parts: list[str] = []
    parameters: dict[str, Any] = {}
    for number, each in enumerate(segments(criteria)):
        text, own = _count_looked_at(each, most)
        parts.append(renamed(text, own, f"part_{number}_"))
        parameters |= {f"part_{number}_{name}": value for name, value in own.items()}
    cursor.execute(statement(f"/* gw:count-list */ select {', '.join(parts)}", schema), parameters)
    found = cursor.fetchone()
    number = sum(counted for counted, _ in found)
    limits = [parameters[f"part_{place}_most"] for place in range(len(found))]
    is_cut_off = any(examined >= limit for (_, examined), limit in zip(found, limits, strict=True))
    return Count(number=min(number, most), is_more=number > most or is_cut_off)


def _count_looked_at(criteria: Criteria, most: int) -> tuple[str, dict[str, Any]]:
    way, looked_at = walk(criteria), looked_at_by(criteria)
    if not looked_at.conditions:
        return _counted(way, "candidate", "count(*)"), way.parameters | {"most": most + 1}
    number = f"count(*) filter (where {looked_at.text()})"
    parameters = way.parameters | looked_at.parameters | {"most": min(most, MOST_LOOKED_AT) + 1}
    return _counted(way, f"candidate {search.JOBS_OF_CANDIDATES}", number), parameters


def _count(criteria: Criteria) -> tuple[str, dict[str, Any]]:
    """Return an expression for the number of jobs, and the number of jobs that were read for it.

    To count the available jobs of all tasks, a shorter walk is enough: their order does not matter.
    """
    has_names = is_narrowed(criteria)
    if criteria.state is State.SCHEDULED and not has_names:
        # No index has the number of attempts, so the walk reads the rows.
        way = walk_by_priority(criteria, columns="job.id, job.attempts")
        return _counted(way, "job", f"count(*) filter (where {NOT_TRIED})"), way.parameters
    if criteria.state is State.SCHEDULED:
        way = walk(criteria)
        tried = f"count(*) filter (where {NOT_TRIED})"
        return _counted(way, f"candidate {search.JOBS_OF_CANDIDATES}", tried), way.parameters
    is_short = criteria.state is State.READY and not has_names
    way = walk_by_priority(criteria) if is_short else walk(criteria)
    return _counted(way, "candidate", "count(*)"), way.parameters


def _counted(way: Walk, source: str, number: str) -> str:
    ctes = f"with recursive {way.ctes}" if way.ctes else ""
    return f"""({ctes} select array[{number}, count(*)]
        from (select * from ({way.body}) as found limit %(most)s) as {source})"""


class OldestReady(NamedTuple):
    """The available job that has been due for the longest time."""

    run_at: Any
    id: int
    task_identifier: str


def oldest_ready(cursor: Any, *, schema: str, tasks: tuple[str, ...] = ()) -> OldestReady | None:
    """Return the job that has been ready for the longest time, of all tasks or of these."""
    criteria = Criteria(state=State.READY, tasks=tasks)
    # The first job in each range of an index is the oldest of the range.
    way = walk(criteria) if tasks else walk_by_priority(criteria)
    text = f"""/* gw:oldest-ready */
    with recursive {way.ctes}
    select {readable("oldest.run_at")}, oldest.id, coalesce((
        select task.identifier from :SCHEMA._private_tasks as task
        where task.id = (select job.task_id from :SCHEMA._private_jobs as job where job.id = oldest.id)), '')
    from (select found.run_at, found.id from ({way.body}) as found order by found.run_at, found.id limit 1) as oldest"""
    cursor.execute(statement(text, schema), {**way.parameters, "most": 1})
    row = cursor.fetchone()
    return None if row is None else OldestReady._make(row)


def earliest(cursor: Any, state: State, *, schema: str, tasks: tuple[str, ...] = ()) -> Any:
    """Return the earliest time of the jobs in a state: when they were locked, permanently failed, or are due."""
    if state is State.READY:
        oldest = oldest_ready(cursor, schema=schema, tasks=tasks)
        return oldest and oldest.run_at
    criteria = Criteria(state=state, tasks=tasks)
    found = search.find(cursor, criteria, schema=schema, limit=1, is_backwards=state is State.FAILED)
    if state is State.SCHEDULED and not found.ids and found.next_token:
        # The few jobs that were read are retried sooner; in the index they are among the scheduled jobs.
        found = search.find(cursor, criteria, schema=schema, limit=MOST_SKIPPED, after=found.next_token)
    rows = search.rows(cursor, found.ids[:1], schema=schema)
    return rows[0].moment if rows else None
