"""The view that changes jobs: one job, the selected jobs, or all that match a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from django_graphile_worker.admin import audit, databases, formatting
from django_graphile_worker.admin.jobs.actions.action_messages import add_messages, notes, success_message
from django_graphile_worker.admin.jobs.actions.bulk_progress import BulkProgress, load_progress, run_steps
from django_graphile_worker.admin.jobs.actions.job_actions import ACTIONS, Action
from django_graphile_worker.admin.jobs.actions.log_messages import log_message
from django_graphile_worker.admin.jobs.list_view import JobListAdmin
from django_graphile_worker.admin.jobs.states import state_name
from django_graphile_worker.admin.pages import explain_database_errors, require_post
from django_graphile_worker.models import Job
from django_graphile_worker.sql import bulk_actions
from django_graphile_worker.sql.inspection import search
from django_graphile_worker.sql.inspection.counts import Count, count_states
from django_graphile_worker.sql.inspection.criteria import Criteria, State

MOST_SELECTED = 1_000
EXAMPLES = 10


class SelectionError(ValueError):
    """The request does not identify the jobs to change."""


class JobActionsAdmin(JobListAdmin):
    """The view of all actions. An action needs POST and its own permission, is confirmed by the user, and is logged."""

    @explain_database_errors
    @require_post
    def act_view(self, request: HttpRequest) -> HttpResponse:
        self.require(self.has_view_permission(request))
        action = ACTIONS.get(request.POST.get("action", ""))
        if action is None:
            messages.warning(request, _("Select an action."))
            return self._redirect_back(request)
        self.require(action.is_allowed(self, request))
        alias = databases.selected_alias(request)
        try:
            criteria = self._selection(request, alias)
        except SelectionError as error:
            messages.error(request, str(error))
            return self._redirect_back(request)
        is_confirmed = "confirmed" in request.POST
        form = action.form(request.POST if is_confirmed else None) if action.form else None
        needs_confirmation = action.needs_confirmation or not criteria.ids or "all" in request.POST
        if (needs_confirmation and not is_confirmed) or (form is not None and not form.is_valid()):
            return self._confirm(request, action, criteria, form, alias)
        return self._run(request, action, criteria, form, alias)

    def _selection(self, request: HttpRequest, alias: str) -> Criteria:
        """Return the criteria of the selected jobs, restricted to the jobs that the user may see."""
        visible_ids = self.visible_ids(request, alias)
        if "all" not in request.POST:
            ids = _ids(request.POST.getlist("id"))
            if not ids:
                raise SelectionError(_("Select jobs, or all that match."))
            return Criteria(ids=ids, within=visible_ids)
        with databases.reading(alias) as session:
            query = self.parse_query(request, session, request.POST.get("q", ""))
        state = request.POST.get("state", "")
        # If conditions with mistakes were ignored, the action would change more jobs than the user selected.
        mistakes = [*query.mistakes, *_state_mistakes(state)]
        if mistakes:
            message = _("No jobs were changed. The search has a mistake, and without it more jobs would match.")
            raise SelectionError(" ".join([message, *mistakes]))
        return replace(query.criteria, state=self.requested_state(state, query.criteria), within=visible_ids)

    def _confirm(self, request: HttpRequest, action: Action, criteria: Criteria, form: Any, alias: str) -> HttpResponse:
        """Show the jobs and the form of the action, and ask for confirmation."""
        with databases.reading(alias) as (cursor, schema):
            found = search.find(cursor, criteria, schema=schema, limit=EXAMPLES)
            rows = search.rows(cursor, found.ids, schema=schema)
            counts = {} if criteria.ids else count_states(cursor, criteria, schema=schema)
        is_all = "all" in request.POST
        context = {
            "title": action.title,
            "action": action,
            "form": form,
            "number": _number(criteria, counts, found),
            "description": _description(request, criteria) if is_all else "",
            "rows": [self.job_row(request, row) for row in rows],
            "has_more": len(criteria.ids) > EXAMPLES or found.next_token is not None,
            "hidden_fields": _hidden_fields(request),
            "act_url": self.url(request, "job", "act"),
            "back_url": self._back_url(request),
            "step": f"{bulk_actions.STEP:,}",
            "is_all": is_all,
        }
        return self.render(request, "confirm.html", context)

    def _run(
        self, request: HttpRequest, action: Action, criteria: Criteria, form: forms.Form | None, alias: str
    ) -> HttpResponse:
        progress = load_progress(request.POST.get("progress"), action.name)
        data = form.cleaned_data if form else {}
        log = _make_log(request, action, criteria, data)
        call = action.make_call(data | {"by": request.user.get_username()})
        progress = run_steps(progress, call, criteria, alias, log)
        if not progress.is_finished:
            return self._render_progress(request, action, progress, form)
        selected = None if "all" in request.POST else len(set(criteria.ids))
        add_messages(request, action, progress, selected=selected)
        return self._redirect_back(request)

    def _render_progress(
        self, request: HttpRequest, action: Action, progress: BulkProgress, form: forms.Form | None
    ) -> HttpResponse:
        """Show the progress, with a form that continues the action."""
        form_data = [(name, request.POST[name]) for name in (form.fields if form else ()) if name in request.POST]
        continued = [("confirmed", "1"), ("progress", progress.signed())]
        context = {
            "title": action.title,
            "success_message": success_message(action, progress),
            "skipped_message": " ".join(notes(action, progress)),
            "has_timed_out": progress.has_timed_out,
            "hidden_fields": [*_hidden_fields(request), *form_data, *continued],
            "act_url": self.url(request, "job", "act"),
            "back_url": self._back_url(request),
        }
        return self.render(request, "progress.html", context, status=503 if progress.has_timed_out else 200)

    def _redirect_back(self, request: HttpRequest) -> HttpResponse:
        return HttpResponseRedirect(self._back_url(request))

    def _back_url(self, request: HttpRequest) -> str:
        back = request.POST.get("back", "")
        hosts = {request.get_host()}
        if back.startswith("/") and url_has_allowed_host_and_scheme(back, hosts, require_https=request.is_secure()):
            return back
        query, state = request.POST.get("q", ""), request.POST.get("state")
        return self.url(request, "job", q=query, state=None if state == State.ANY else state)


def _number(criteria: Criteria, counts: dict[State, Count], found: search.Found) -> str:
    if criteria.ids and criteria.state is State.ANY:
        return f"{len(criteria.ids):,}"
    if found.next_token is None:
        return f"{len(found.ids):,}"
    return formatting.count(counts.get(criteria.state)) or _("more than %(number)s") % {"number": len(found.ids)}


def _description(request: HttpRequest, criteria: Criteria) -> str:
    """Return the state and the text of a search, as a description of the jobs that match it."""
    state = "" if criteria.state is State.ANY else f"{state_name(criteria.state)} "
    return f"{state}{request.POST.get('q', '')}".strip() or _("all jobs")


def _hidden_fields(request: HttpRequest) -> list[tuple[str, str]]:
    """Return the fields that identify the selected jobs, for the form on the next page."""
    names = ("action", "all", "q", "state", "back", databases.PARAMETER)
    pairs = [(name, request.POST[name]) for name in names if name in request.POST]
    if "all" in request.POST:
        return pairs
    return pairs + [("id", str(each)) for each in _ids(request.POST.getlist("id"))]


def _make_log(
    request: HttpRequest, action: Action, criteria: Criteria, data: dict[str, Any]
) -> Callable[[BulkProgress], None]:
    """Return a function that logs a step in the transaction of the step, so that it logs exactly what is committed."""
    search_text = _description(request, criteria) if "all" in request.POST else ""
    message = log_message(action.name, action.title, data, search_text)
    entry = audit.BulkEntry(request, Job, message, action.log_flag)

    def log(progress: BulkProgress) -> None:
        if progress.changed_now:
            entry.write(progress.ids, progress.changed_now, is_last=progress.is_finished)

    return log


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
