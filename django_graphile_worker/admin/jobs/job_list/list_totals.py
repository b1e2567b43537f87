"""How many jobs a list has on all its pages: the number of the tab of all states, and of "Select all"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from django.utils.translation import gettext as _

from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.sql.inspection.job_search import match_counts
from django_graphile_worker.sql.inspection.job_search.counts import Count
from django_graphile_worker.sql.inspection.job_search.criteria import STATES, Criteria, State


class Total(NamedTuple):
    """A number of jobs as it is shown, "" if it was not counted; an estimate, or a count that was cut, is not exact."""

    text: str
    is_exact: bool


def list_total(session: databases.Session, criteria: Criteria, counts: Mapping[State, Count]) -> Total:
    """Return the number of jobs that meet the criteria, from the counts of the states.

    If a count was cut, the number of all jobs is the planner's estimate. Of a search, only what was counted is certain.
    """
    states = STATES if criteria.state is State.ANY else (criteria.state,)
    counted = [counts[state] for state in states if state in counts]
    if len(counted) < len(states):
        return Total("", is_exact=False)
    number = sum(part.number for part in counted)
    if not any(part.is_more for part in counted):
        return Total(formatting.number(number), is_exact=True)
    if criteria == Criteria():
        estimate = match_counts.estimate(session.cursor, schema=session.schema)
        if estimate > number:
            return Total(_("about %(number)s") % {"number": formatting.number(estimate)}, is_exact=False)
    return Total(formatting.count(Count(number=number, is_more=True)), is_exact=False)
