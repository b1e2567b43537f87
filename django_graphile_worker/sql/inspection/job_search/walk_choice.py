"""Which index a search can walk along: by the names of its criteria, or by those of each member of a group.

A walk of a group is the union of the walks of its members. It is chosen only if each member has a walk of its own:
otherwise all jobs of the state have to be read anyway.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State, included_states
from django_graphile_worker.sql.inspection.job_search.orders import BY_FAILURE, Order

# The jobs of more queues than this are found by reading the jobs of all queues.
MOST_QUEUES = 200
AVAILABLE = (State.READY, State.SCHEDULED, State.WAITING)


def is_possible(criteria: Criteria, state: State) -> bool:
    """Return whether a job of the state can meet the criteria."""
    included = included_states(state)
    if criteria.states and not included & set(criteria.states):
        return False
    if (criteria.workers or has_pattern(criteria, "worker")) and State.RUNNING not in included:
        return False
    if has_pattern(criteria, "limit") and not included & {State.LIMITED, State.RUNNING}:
        return False
    has_error = criteria.error_names or has_pattern(criteria, "exception")
    return not (has_error and included <= {State.RUNNING, State.SCHEDULED})


def is_narrowed(criteria: Criteria) -> bool:
    """Return whether the criteria name tasks, queues, jobs or anything else that few jobs may have."""
    names = (criteria.tasks, criteria.excluded_tasks, criteria.queues, criteria.ids, criteria.keys, criteria.workers)
    others = (criteria.error_names, criteria.any_of, criteria.patterns, criteria.states)
    return any(names) or any(others)


def has_pattern(criteria: Criteria, name: str) -> bool:
    return any(each == name for each, _ in criteria.patterns)


def has_flags(criteria: Criteria) -> bool:
    return bool(criteria.flags) or has_pattern(criteria, "flag")


def has_few_queues(criteria: Criteria) -> bool:
    return 0 < len(criteria.queues) <= MOST_QUEUES


def has_own_walk(criteria: Criteria, state: State, order: Order) -> bool:
    """Return whether an index leads to the jobs of the state that meet the criteria, past most other jobs."""
    if criteria.ids or criteria.keys:
        return True
    if state is State.ANY:
        return False
    if state is State.RUNNING:
        return True
    # The index of error names has the jobs of each name in the order of their last change. No other index has the jobs
    # to retry in that order.
    is_by_failure = order in (BY_FAILURE, BY_FAILURE.reversed())
    if is_by_failure and state in (State.RETRYING, State.FAILING):
        return bool(criteria.error_names)
    if criteria.tasks or criteria.excluded_tasks:
        return True
    if state in AVAILABLE:
        return has_few_queues(criteria) or has_flags(criteria)
    return state is State.FAILED and bool(criteria.error_names)


def walkable_group(criteria: Criteria, order: Order) -> int | None:
    """Return the number of the group along which to walk; None if the criteria themselves have a walk, or no group."""
    if has_own_walk(criteria, criteria.state, order):
        return None
    for number, group in enumerate(criteria.any_of):
        members = [each for each in group if is_possible(each, criteria.state)]
        if all(has_walk(each, criteria.state, order) for each in members):
            return number
    return None


def has_walk(criteria: Criteria, state: State, order: Order) -> bool:
    here = replace(criteria, state=state)
    return has_own_walk(here, state, order) or walkable_group(here, order) is not None


def member_in(criteria: Criteria, member: Criteria) -> Criteria:
    """Return the member of a group with the bounds of the criteria, so that its walk meets both."""
    return replace(
        member,
        state=criteria.state,
        priority=intersection(criteria.priority, member.priority),
        run_at=intersection(criteria.run_at, member.run_at),
    )


def intersection(one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the bounds that lie within both bounds; None means that there is no bound."""
    lows = [low for low in (one[0], other[0]) if low is not None]
    highs = [high for high in (one[1], other[1]) if high is not None]
    return max(lows, default=None), min(highs, default=None)
