"""How many jobs an action would change: exactly up to a million, above that as the planner estimates it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.sql.conditions import HAS_FAILED, NOT_TRIED
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.criteria import CONDITIONS, STATES, Criteria, State
from django_graphile_worker.sql.inspection.job_search.index_walks import looked_at_by, walk
from django_graphile_worker.sql.inspection.job_search.level_walks import LIMITS
from django_graphile_worker.sql.inspection.job_search.priority_walk import walk_by_priority
from django_graphile_worker.sql.inspection.job_search.row_conditions import where_whole
from django_graphile_worker.sql.inspection.job_search.walk_choice import is_narrowed, is_possible
from django_graphile_worker.sql.schema import statement

# More jobs are estimated.
MOST_COUNTED = 1_000_000
# A page may leave out tasks beyond a limit; the number that a user confirms must not.
NO_LIMITS = dict.fromkeys(LIMITS)
# What the planner can estimate of the conditions of these states.
ESTIMATED = {
    State.SCHEDULED: "job.is_available and job.run_at > now()",
    State.RETRYING: f"{HAS_FAILED} and job.is_available and job.run_at > now()",
}


class MatchCount(Frozen):
    """A number of jobs: exactly, about so many, or more than so many."""

    number: int
    is_estimate: bool = False
    is_minimum: bool = False

    def __add__(self, other: MatchCount) -> MatchCount:
        return MatchCount(
            number=self.number + other.number,
            is_estimate=self.is_estimate or other.is_estimate,
            is_minimum=self.is_minimum or other.is_minimum,
        )


def states_to_count(criteria: Criteria, states: Sequence[State]) -> list[State]:
    """Return the states among these in which jobs may meet the criteria."""
    wanted = {
        State.ANY: STATES,
        State.WAITING: (State.SCHEDULED, State.RETRYING),
        State.FAILING: (State.RETRYING, State.FAILED),
    }.get(criteria.state, (criteria.state,))
    return [state for state in wanted if state in states and is_possible(criteria, state)]


def count_exactly(
    cursor: Any, criteria: Criteria, state: State, *, schema: str, most: int | None = None
) -> MatchCount | None:
    """Count the jobs of a state that meet the criteria; None if there are more to read than ``most``, or a million."""
    of_state = replace(criteria, state=state)
    most = MOST_COUNTED if most is None else most
    looked_at = looked_at_by(of_state)
    if state is State.SCHEDULED and not is_narrowed(of_state) and looked_at.conditions == [NOT_TRIED]:
        return _count_scheduled(cursor, of_state, most, schema=schema)
    way = walk(of_state)
    source = f"candidate {search.JOBS_OF_CANDIDATES}" if looked_at.conditions else "candidate"
    text = f"""/* gw:count-matching */
    with recursive {f"{way.ctes}, " if way.ctes else ""}
    candidate as (select * from ({way.body}) as found limit %(most)s)
    select (select count(*) from {source} where {looked_at.text()}), (select count(*) from candidate)"""
    parameters = way.parameters | looked_at.parameters | NO_LIMITS | {"most": most + 1}
    cursor.execute(statement(text, schema), parameters)
    number, examined = cursor.fetchone()
    return None if examined > most else MatchCount(number=number)


def _count_scheduled(cursor: Any, criteria: Criteria, most: int, *, schema: str) -> MatchCount | None:
    """Count scheduled jobs of all tasks along one index, with the rows, as no index has the number of attempts."""
    way = walk_by_priority(criteria, columns="job.attempts")
    text = f"""/* gw:count-scheduled */
    with recursive {way.ctes}
    select count(*) filter (where {NOT_TRIED}), count(*)
    from (select * from ({way.body}) as found limit %(most)s) as job"""
    cursor.execute(statement(text, schema), way.parameters | NO_LIMITS | {"most": most + 1})
    number, examined = cursor.fetchone()
    return None if examined > most else MatchCount(number=number)


def estimate(cursor: Any, criteria: Criteria, state: State, *, schema: str) -> MatchCount:
    """Return the planner's estimate of the number, which reads no jobs, rounded to two digits."""
    of_state = replace(criteria, state=state)
    whole = where_whole(of_state, "")
    text = f"""/* gw:estimate-matching */ explain (format json)
    select from :SCHEMA._private_jobs as job where {ESTIMATED.get(state, CONDITIONS[state])} and {whole.text()}"""
    cursor.execute(statement(text, schema), whole.parameters)
    (plan,) = cursor.fetchone()
    plans = json.loads(plan) if isinstance(plan, str) else plan
    return MatchCount(number=rounded(int(plans[0]["Plan"]["Plan Rows"])), is_estimate=True)


def rounded(number: int) -> int:
    """Return a number with two digits that are not zero."""
    digits = len(str(number)) - 2
    return round(number, -digits) if digits > 0 else number
