"""What a user is asked before an action: the number of jobs, their states, and to type a large number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from django.core import signing
from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.jobs.actions.job_actions import Action
from django_graphile_worker.admin.jobs.actions.selection import Selection
from django_graphile_worker.admin.jobs.states import state_name
from django_graphile_worker.sql.inspection.job_search import match_counts
from django_graphile_worker.sql.inspection.job_search.criteria import STATES, Criteria, State
from django_graphile_worker.sql.inspection.job_search.index_walks import looked_at_by
from django_graphile_worker.sql.inspection.job_search.match_counts import MatchCount
from django_graphile_worker.sql.job_actions import bulk_steps

# More jobs than this are changed only after the user has typed their number.
MOST_UNTYPED = 1_000
# Seconds for counting the jobs of a state exactly.
COUNTING_SECONDS = 4.0
# If that is not enough, up to this number.
FEWER_COUNTED = 20_000
SALT = "graphile_worker.confirmation"
NONE = MatchCount(number=0)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The number of jobs that an action would change, and of those in each state."""

    action: Action
    selection: Selection
    counts: Mapping[State, MatchCount]

    @property
    def total(self) -> MatchCount:
        touched = (count for state, count in self.counts.items() if state in self.action.states)
        return reduce(MatchCount.__add__, touched, NONE)

    @property
    def must_be_typed(self) -> bool:
        return self.total.number > MOST_UNTYPED

    def question(self, name_of_one: str) -> str:
        """Return the heading; `name_of_one` is the name of the only job, "" for several."""
        if name_of_one:
            return str(self.action.question_of_one) % {"job": name_of_one}
        return str(self.action.question % {"count": self.total.number, "number": shown(self.total)})

    def explanation(self, name_of_one: str) -> str:
        """Return what the action does, in the singular if the question is about one job."""
        return str(self.action.explanation % {"count": 1 if name_of_one else self.total.number})

    def touched(self) -> str:
        """Return how many jobs of which state are changed; "" if they are all in one state."""
        found = [(state, count) for state, count in self.counts.items() if state in self.action.states and count.number]
        return _listed(found) if len(self.counts) > 1 else ""

    def untouched(self) -> str:
        """Return how many jobs of which state stay as they are."""
        found = [(state, count) for state, count in self.counts.items() if state not in self.action.states]
        return _listed([(state, count) for state, count in found if count.number])

    def signed(self) -> str:
        """Return the field of the form that has the number, signed so that the user cannot forge it."""
        return signing.dumps([self.action.name, self.selection.description, self.total.number], salt=SALT)


def shown(count: MatchCount) -> str:
    """Return the number as it is shown: an estimate says that it is one."""
    number = {"number": formatting.number(count.number)}
    if count.is_minimum:
        return _("more than %(number)s") % number
    return _("about %(number)s") % number if count.is_estimate else number["number"]


def _listed(found: list[tuple[State, MatchCount]]) -> str:
    return ", ".join(
        _("%(number)s %(state)s") % {"number": shown(count), "state": state_name(state).lower()}
        for state, count in found
    )


def count_selection(action: Action, selection: Selection, alias: str) -> Confirmation:
    """Count the jobs that the action would change."""
    criteria = selection.criteria
    if not selection.is_all:
        with databases.reading(alias) as (cursor, schema):
            ids = bulk_steps.matching_ids(cursor, criteria, criteria.ids, schema=schema)
            states = bulk_steps.states_of(cursor, ids, schema=schema)
        counts = {state: MatchCount(number=len(states[state])) for state in STATES if state in states}
        return Confirmation(action, selection, counts)
    if criteria.state is State.FAILING:
        failing, failed = (_count(alias, criteria, state) for state in (State.FAILING, State.FAILED))
        retrying = MatchCount(number=max(failing.number - failed.number, 0), is_estimate=failing.is_estimate)
        return Confirmation(action, selection, {State.RETRYING: retrying, State.FAILED: failed})
    states_wanted = match_counts.states_to_count(criteria, action.states)
    return Confirmation(action, selection, {state: _count(alias, criteria, state) for state in states_wanted})


def _count(alias: str, criteria: Criteria, state: State) -> MatchCount:
    """Count the jobs of a state: exactly, or as the planner estimates it, but not below what is certain."""
    exact, has_ended = _count_within(alias, criteria, state, match_counts.MOST_COUNTED)
    if exact is not None:
        return exact
    with databases.reading(alias) as (cursor, schema):
        estimate = match_counts.estimate(cursor, criteria, state, schema=schema)
    certain = match_counts.MOST_COUNTED
    if not has_ended:
        fewer, has_ended = _count_within(alias, criteria, state, FEWER_COUNTED)
        if fewer is not None:
            return fewer
        # A search that has to read the row of each job may find few among many: nothing is certain of their number.
        certain = FEWER_COUNTED if has_ended and not looked_at_by(criteria).conditions else 0
    if estimate.number < certain:
        return MatchCount(number=certain, is_minimum=True)
    return estimate


def _count_within(alias: str, criteria: Criteria, state: State, most: int) -> tuple[MatchCount | None, bool]:
    """Return the exact number unless there are more, and whether counting has ended in time."""
    try:
        with databases.reading(alias, timeout=COUNTING_SECONDS) as (cursor, schema):
            return match_counts.count_exactly(cursor, criteria, state, schema=schema, most=most), True
    except databases.PageTimeoutError:
        return None, False


def is_number_typed(request: HttpRequest, action: Action, selection: Selection, alias: str) -> bool:
    """Return whether the user has typed the number of jobs, if there are so many that it is asked."""
    number = _signed_number(request.POST.get("counted"), action, selection)
    if number is None:
        number = count_selection(action, selection, alias).total.number
    if number <= MOST_UNTYPED:
        return True
    typed = "".join(letter for letter in request.POST.get("typed", "") if letter.isdecimal())
    return bool(typed) and int(typed) == number


def _signed_number(text: str | None, action: Action, selection: Selection) -> int | None:
    try:
        kept: Any = signing.loads(text or "", salt=SALT, max_age=3_600)
    except signing.BadSignature:
        return None
    name, description, number = kept
    return int(number) if (name, description) == (action.name, selection.description) else None
