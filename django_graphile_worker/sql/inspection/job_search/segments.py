"""The parts of a list of jobs in any state: no index has all jobs of a task in one order, but each state has one.

So a search by names lists the jobs of one state after the other. A search that no index helps with is one part: it
reads the jobs from the newest to the oldest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State
from django_graphile_worker.sql.inspection.job_search.orders import ORDERS
from django_graphile_worker.sql.inspection.job_search.walk_choice import has_flags, has_pattern, has_walk, is_possible

# In the order of the list. Scheduled and retrying jobs are in the same indexes, in the same order.
SEQUENCE = (State.RUNNING, State.READY, State.LIMITED, State.WAITING, State.FAILED)


def segments(criteria: Criteria) -> Sequence[Criteria]:
    """Return the parts of the list, which have no job in common, each with a state of its own."""
    if criteria.state is not State.ANY or criteria.ids or criteria.keys:
        return (criteria,)
    if criteria.error_names or has_pattern(criteria, "exception"):
        return (replace(criteria, state=State.FAILING),)
    found = _of_errors(criteria) or [criteria]
    if all(each.state is State.FAILING or _is_walked_by_state(each) for each in found):
        return tuple(part for each in found for part in _by_state(each))
    return (criteria,)


def _is_walked_by_state(criteria: Criteria) -> bool:
    """Return whether the indexes of the states lead to the jobs in any state, past most other jobs."""
    if has_walk(criteria, State.ANY, ORDERS[State.ANY]):
        return False
    is_running = criteria.workers or has_pattern(criteria, "worker") or has_pattern(criteria, "limit")
    is_of_states = bool(criteria.states or is_running or has_flags(criteria))
    return is_of_states or has_walk(criteria, State.READY, ORDERS[State.READY])


def _by_state(criteria: Criteria) -> list[Criteria]:
    if criteria.state is not State.ANY:
        return [criteria]
    states = [state for state in SEQUENCE if is_possible(criteria, state)]
    if criteria.states and not {State.SCHEDULED, State.RETRYING} <= set(criteria.states):
        split = {State.WAITING: [each for each in criteria.states if each in (State.SCHEDULED, State.RETRYING)]}
        states = [each for state in states for each in split.get(state, [state])]
    return [replace(criteria, state=state) for state in states] or [replace(criteria, state=State.RUNNING)]


def _of_errors(criteria: Criteria) -> list[Criteria]:
    """Divide a search for an error name or for something else: first the failed jobs with the error, then the others.

    The index of error names has its jobs in the order of their failure, which differs from the order of other indexes.
    """
    for number, group in enumerate(criteria.any_of):
        named = tuple(each for each in group if each.error_names)
        others = tuple(each for each in group if not each.error_names)
        if named:
            before, after = criteria.any_of[:number], criteria.any_of[number + 1 :]
            failed = replace(criteria, state=State.FAILING, any_of=(*before, named, *after))
            rest = replace(criteria, any_of=(*before, others, *after), none_of=(*criteria.none_of, *named))
            return [failed, rest] if others else [failed]
    return []
