"""What a user is asked before an action: the number of jobs, their states, and to type a large number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.jobs.actions.bulk_progress import BulkProgress
from django_graphile_worker.admin.jobs.actions.job_actions import Action
from django_graphile_worker.admin.jobs.actions.selection import Selection
from django_graphile_worker.admin.jobs.states import state_name
from django_graphile_worker.sql.inspection.job_search.criteria import STATES, State
from django_graphile_worker.sql.job_actions import bulk_steps, undo

# More jobs than this are changed only after the user has typed their number.
MOST_UNTYPED = 1_000


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The number of jobs that an action would change, and of those in each state."""

    action: Action
    counts: Mapping[State, int]
    # Whether there may be more than could be collected in one request.
    is_minimum: bool = False

    @property
    def total(self) -> int:
        return sum(number for state, number in self.counts.items() if state in self.action.states)

    @property
    def has_undo(self) -> bool:
        """Whether the action could be undone, and is not only because of the number of jobs."""
        return not self.action.has_undo or (self.total <= undo.MAX_UNDONE and not self.is_minimum)

    def question(self, name_of_one: str) -> str:
        """Return the heading; `name_of_one` is the name of the only job, "" for several."""
        if name_of_one:
            text = self.action.question_of_one if self.total else _("“%(action)s” is not possible for %(job)s")
            return str(text) % {"job": name_of_one, "action": self.action.title}
        number = formatting.number(self.total)
        if self.is_minimum:
            number = _("at least %(number)s") % {"number": number}
        return str(self.action.question % {"count": self.total, "number": number})

    def explanation(self, name_of_one: str) -> str:
        """Return what the action does, in the singular if the question is about one job."""
        if name_of_one and not self.total:
            (state,) = self.counts
            return _("Nothing would be changed: its state is “%(state)s”.") % {"state": state_name(state)}
        return str(self.action.explanation % {"count": 1 if name_of_one else self.total})

    def touched(self) -> str:
        """Return how many jobs of which state are changed; "" if they are all in one state."""
        found = [state for state in self.counts if state in self.action.states]
        return self._listed(found) if len(self.counts) > 1 else ""

    def untouched(self) -> str:
        """Return how many jobs of which state stay as they are."""
        return self._listed([state for state in self.counts if state not in self.action.states])

    def _listed(self, states: list[State]) -> str:
        return ", ".join(
            _("%(number)s %(state)s")
            % {"number": formatting.number(self.counts[state]), "state": state_name(state).lower()}
            for state in states
        )


def of_collected(action: Action, progress: BulkProgress) -> Confirmation:
    """Return what is asked about all jobs that match a search, which have been collected."""
    counts = {state: progress.counts[state] for state in STATES if state in progress.counts}
    return Confirmation(action, counts, is_minimum=not progress.is_collected)


def of_selected(action: Action, selection: Selection, alias: str) -> Confirmation:
    """Return what is asked about jobs that were selected by hand."""
    criteria = selection.criteria
    with databases.reading(alias) as (cursor, schema):
        ids = bulk_steps.matching_ids(cursor, criteria, criteria.ids, schema=schema)
        states = bulk_steps.states_of(cursor, ids, schema=schema)
    return Confirmation(action, {state: len(states[state]) for state in STATES if state in states})


def is_number_typed(request: HttpRequest, progress: BulkProgress) -> bool:
    """Return whether the user has typed the number of jobs, if there are so many that it is asked."""
    typed = "".join(letter for letter in request.POST.get("typed", "") if letter.isdecimal())
    return progress.asked <= MOST_UNTYPED or typed == str(progress.asked)
