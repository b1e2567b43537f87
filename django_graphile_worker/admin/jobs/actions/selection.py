"""The jobs that a request selects for an action: by their ids, or all that match a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _

from django_graphile_worker.admin import databases
from django_graphile_worker.admin.jobs.states import state_name
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State

MOST_SELECTED = 1_000


class SelectionError(ValueError):
    """The request does not identify the jobs to change."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The criteria of the selected jobs, and whether they are all that match a search."""

    criteria: Criteria
    is_all: bool
    # The search, as the user wrote it.
    text: str = ""

    @property
    def search(self) -> str:
        """What identifies the search; "" for jobs that were selected by hand."""
        return f"{self.criteria.state.value}:{self.text}" if self.is_all else ""

    @property
    def description(self) -> str:
        """The state and the text of a search; "" for jobs that were selected by hand."""
        if not self.is_all:
            return ""
        state = "" if self.criteria.state is State.ANY else state_name(self.criteria.state)
        return " ".join(part for part in (state, self.text) if part) or _("all jobs")


def read_selection(admin: Any, request: HttpRequest, alias: str) -> Selection:
    """Return the selection of the request, restricted to the jobs that the user may see."""
    visible_ids = admin.visible_ids(request, alias)
    if "all" not in request.POST:
        ids = selected_ids(request.POST.getlist("id"))
        if not ids:
            raise SelectionError(_("Select jobs, or all that match."))
        return Selection(Criteria(ids=ids, within=visible_ids), is_all=False)
    text, state = request.POST.get("q", ""), request.POST.get("state", "")
    with databases.reading(alias) as session:
        query = admin.parse_query(request, session, text)
    # If conditions with mistakes were ignored, the action would change more jobs than the user selected.
    mistakes = [*query.mistakes, *_state_mistakes(state)]
    if mistakes:
        message = _("No jobs were changed. The search has a mistake, and without it more jobs would match.")
        raise SelectionError(" ".join([message, *mistakes]))
    wanted = admin.requested_state(state, query.criteria)
    return Selection(replace(query.criteria, state=wanted, within=visible_ids), is_all=True, text=text)


def hidden_fields(request: HttpRequest) -> list[tuple[str, str]]:
    """Return the fields that identify the selected jobs, for the form on the next page."""
    names = ("action", "all", "q", "state", "back", "typed", databases.PARAMETER)
    pairs = [(name, request.POST[name]) for name in names if name in request.POST]
    if "all" in request.POST:
        return pairs
    return pairs + [("id", str(each)) for each in selected_ids(request.POST.getlist("id"))]


def _state_mistakes(state: str) -> list[str]:
    if not state or state in State._value2member_map_:
        return []
    expected = ", ".join(each.value for each in State)
    return [_("state: expected one of %(names)s") % {"names": expected}]


def selected_ids(values: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of a form, each once; raise Http404 for values that are not numbers."""
    try:
        ids = tuple(
            dict.fromkeys(int(value) for value in values[:MOST_SELECTED] if value.isascii() and len(value) < 20)
        )
    except ValueError:
        raise Http404 from None
    return tuple(each for each in ids if 0 < each < 2**63)
