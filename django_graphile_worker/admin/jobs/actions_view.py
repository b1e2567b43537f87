"""Doing something with one job, with some, or with all that match."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker.admin import audit, databases, formatting
from django_graphile_worker.admin.jobs.actions import ACTIONS, Action
from django_graphile_worker.admin.jobs.bulk_progress import Progress, carry_out, resumed
from django_graphile_worker.admin.jobs.list_view import ListingPage
from django_graphile_worker.admin.jobs.states import name_of
from django_graphile_worker.admin.pages import page, posted
from django_graphile_worker.models import Job
from django_graphile_worker.sql import bulk_actions
from django_graphile_worker.sql.inspection import search
from django_graphile_worker.sql.inspection.counts import Count, count_states
from django_graphile_worker.sql.inspection.criteria import Criteria, State

MOST_SELECTED = 1_000
EXAMPLES = 10


class UnclearError(ValueError):
    """Nobody can tell which jobs are meant."""


class ActingPage(ListingPage):
    """Every change of jobs goes through here: POST, with its own permission, once asked for, and noted."""

    @page
    @posted
    def act_view(self, request: HttpRequest) -> HttpResponse:
        self.require(self.has_view_permission(request))
        action = ACTIONS.get(request.POST.get("action", ""))
        if action is None:
            messages.warning(request, _("Choose an action."))
            return self._back(request)
        self.require(action.is_allowed(self, request))
        alias = databases.alias_of(request)
        try:
            criteria = self._chosen(request, alias)
        except UnclearError as error:
            messages.error(request, str(error))
            return self._back(request)
        is_asked = "confirmed" in request.POST
        form = action.form(request.POST if is_asked else None) if action.form else None
        takes_all = not criteria.ids or "all" in request.POST
        if not is_asked and (action.needs_asking or takes_all):
            return self._ask(request, action, criteria, form, alias)
        if form is not None and not form.is_valid():
            return self._ask(request, action, criteria, form, alias)
        return self._do(request, action, criteria, form, alias)

    def _chosen(self, request: HttpRequest, alias: str) -> Criteria:
        """The jobs that are meant, and of them only those that the user may see; UnclearError when nobody can tell."""
        within = self.within(request, alias)
        if "all" not in request.POST:
            ids = _ids(request.POST.getlist("id"))
            if not ids:
                raise UnclearError(_("Choose jobs, or all that match."))
            return Criteria(ids=ids, within=within)
        with databases.reading(alias) as session:
            query = self.read_query(request, session, request.POST.get("q", ""))
        state = request.POST.get("state", "")
        # All that match must never mean more than what was asked for.
        mistakes = [*query.mistakes, *_state_mistakes(state)]
        if mistakes:
            told = _("Nothing was done, as the search has a mistake, and without it more jobs would match.")
            raise UnclearError(" ".join([told, *mistakes]))
        return replace(query.criteria, state=self.state_asked(state, query.criteria), within=within)

    def _ask(self, request: HttpRequest, action: Action, criteria: Criteria, form: Any, alias: str) -> HttpResponse:
        with databases.reading(alias) as (cursor, schema):
            found = search.find(cursor, criteria, schema=schema, limit=EXAMPLES)
            rows = search.rows(cursor, found.ids, schema=schema)
            counts = {} if criteria.ids else count_states(cursor, criteria, schema=schema)
        is_all = "all" in request.POST
        sees = self.has_view_payload_permission(request)
        context = {
            "title": str(action.label).rstrip("…"),
            "action": action,
            "form": form,
            "number": self._number(criteria, counts, found),
            "description": self._description(request, criteria) if is_all else "",
            "examples": [self._line(request, row, sees) for row in rows],
            "has_more": len(criteria.ids) > EXAMPLES or found.next_token is not None,
            "hidden": self._repeated(request),
            "act_url": self.url(request, "job", "act"),
            "back_url": self._back_url(request),
            "step": f"{bulk_actions.STEP:,}",
            "is_all": is_all,
        }
        return self.render(request, "confirm.html", context)

    def _number(self, criteria: Criteria, counts: dict[State, Count], found: search.Found) -> str:
        if criteria.ids and criteria.state is State.ANY:
            return f"{len(criteria.ids):,}"
        if found.next_token is None:
            return f"{len(found.ids):,}"
        return formatting.count(counts.get(criteria.state)) or _("more than %(number)s") % {"number": len(found.ids)}

    def _description(self, request: HttpRequest, criteria: Criteria) -> str:
        state = "" if criteria.state is State.ANY else f"{name_of(criteria.state)} "
        return f"{state}{request.POST.get('q', '')}".strip() or _("all jobs")

    def _repeated(self, request: HttpRequest) -> list[tuple[str, str]]:
        """The fields that say what is meant, to be sent again with the answer."""
        names = ("action", "all", "q", "state", "back", databases.PARAMETER)
        pairs = [(name, request.POST[name]) for name in names if name in request.POST]
        if "all" in request.POST:
            return pairs
        return pairs + [("id", str(each)) for each in _ids(request.POST.getlist("id"))]

    def _do(
        self, request: HttpRequest, action: Action, criteria: Criteria, form: forms.Form | None, alias: str
    ) -> HttpResponse:
        progress = resumed(request.POST.get("progress"), action.name)
        given = form.cleaned_data if form else {}
        note = self._noting(request, action, criteria, given)
        progress = carry_out(progress, action.call(given), criteria, alias, note)
        if not progress.is_over:
            return self._go_on(request, action, progress, form)
        self._tell(request, action, criteria, progress)
        return self._back(request)

    def _noting(
        self, request: HttpRequest, action: Action, criteria: Criteria, given: dict[str, Any]
    ) -> Callable[[Progress], None]:
        """Each step is noted in its own transaction: the log tells neither more nor less than what was done."""
        said = ", ".join(f"{name}={value}" for name, value in given.items() if value not in (None, ""))
        where = f" {self._description(request, criteria)}" if "all" in request.POST else ""
        message = f"{str(action.label).rstrip('…')}{where}{f' ({said})' if said else ''}."
        entry = audit.Entry(request, Job, message, action.flag)

        def note(progress: Progress) -> None:
            if progress.changed_now:
                entry.write(progress.ids, progress.changed_now, is_last=progress.is_over)

        return note

    def _go_on(self, request: HttpRequest, action: Action, progress: Progress, form: forms.Form | None) -> HttpResponse:
        """Tell what has been done, and offer to do the rest."""
        given = [(name, request.POST[name]) for name in (form.fields if form else ()) if name in request.POST]
        context = {
            "title": str(action.label).rstrip("…"),
            "done": str(action.done) % {"jobs": formatting.jobs(progress.changed)},
            "left_alone": self._left_alone(progress),
            "is_stuck": progress.is_stuck,
            "hidden": [*self._repeated(request), *given, ("confirmed", "1"), ("progress", progress.signed())],
            "act_url": self.url(request, "job", "act"),
            "back_url": self._back_url(request),
        }
        return self.render(request, "progress.html", context, status=503 if progress.is_stuck else 200)

    def _left_alone(self, progress: Progress) -> str:
        if not progress.left_alone:
            return ""
        left = ngettext(
            "%(number)s job was left alone, because a worker is running it.",
            "%(number)s jobs were left alone, because workers are running them.",
            progress.left_alone,
        )
        return left % {"number": f"{progress.left_alone:,}"}

    def _tell(self, request: HttpRequest, action: Action, criteria: Criteria, progress: Progress) -> None:
        if progress.changed:
            messages.success(request, str(action.done) % {"jobs": formatting.jobs(progress.changed)})
        if progress.left_alone:
            messages.warning(request, self._left_alone(progress))
        missing = len(set(criteria.ids)) - progress.found if "all" not in request.POST else 0
        if missing > 0:
            gone = ngettext("%(number)s job is no longer there.", "%(number)s jobs are no longer there.", missing)
            messages.warning(request, gone % {"number": f"{missing:,}"})
        if not progress.found and not missing:
            messages.warning(request, _("No job matched."))

    def _back(self, request: HttpRequest) -> HttpResponse:
        return HttpResponseRedirect(self._back_url(request))

    def _back_url(self, request: HttpRequest) -> str:
        back = request.POST.get("back", "")
        hosts = {request.get_host()}
        if back.startswith("/") and url_has_allowed_host_and_scheme(back, hosts, require_https=request.is_secure()):
            return back
        query, state = request.POST.get("q", ""), request.POST.get("state")
        return self.url(request, "job", q=query, state=None if state == State.ANY else state)


def _state_mistakes(state: str) -> list[str]:
    if not state or state in State._value2member_map_:
        return []
    expected = ", ".join(each.value for each in State)
    return [_("state: expected one of %(names)s") % {"names": expected}]


def _ids(values: list[str]) -> tuple[int, ...]:
    try:
        ids = tuple(
            dict.fromkeys(int(value) for value in values[:MOST_SELECTED] if value.isascii() and len(value) < 20)
        )
    except ValueError:
        raise Http404 from None
    return tuple(each for each in ids if 0 < each < 2**63)
