"""The view that changes jobs: one job, the selected jobs, or all that match a search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from django_graphile_worker.admin import audit, databases, formatting
from django_graphile_worker.admin.jobs.actions import confirmation
from django_graphile_worker.admin.jobs.actions.action_messages import (
    add_messages,
    done_message,
    notes,
    stopped_message,
)
from django_graphile_worker.admin.jobs.actions.bulk_progress import (
    BulkAction,
    BulkProgress,
    NoLowerPriorityError,
    load_progress,
)
from django_graphile_worker.admin.jobs.actions.job_actions import ACTIONS, Action
from django_graphile_worker.admin.jobs.actions.log_messages import log_message
from django_graphile_worker.admin.jobs.actions.reschedule_form import fields_to_send_again
from django_graphile_worker.admin.jobs.actions.selection import (
    Selection,
    SelectionError,
    hidden_fields,
    read_selection,
)
from django_graphile_worker.admin.jobs.job_list.list_view import JobListAdmin
from django_graphile_worker.admin.pages import explain_database_errors
from django_graphile_worker.job_options import SMALLEST_PRIORITY
from django_graphile_worker.models import Job
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.criteria import State
from django_graphile_worker.sql.job_actions import bulk_steps, undo
from django_graphile_worker.sql.job_actions.bulk_steps import PendingStep, StepResult

EXAMPLES = 10


class JobActionsAdmin(JobListAdmin):
    """The view of all actions. An action needs POST and its own permission, is confirmed by the user, and is logged."""

    @explain_database_errors
    def act_view(self, request: HttpRequest) -> HttpResponse:
        self.require(self.has_view_permission(request))
        if request.method != "POST":
            # The address of a confirmation, opened once more: it has no jobs.
            messages.info(request, _("Nothing was changed. Select the jobs and the action again."))
            return HttpResponseRedirect(self.url(request, "job"))
        action = ACTIONS.get(request.POST.get("action", ""))
        if action is None:
            messages.warning(request, _("Select an action."))
            return self._redirect_back(request)
        self.require(action.is_allowed(self, request))
        alias = databases.selected_alias(request)
        try:
            selection = read_selection(self, request, alias)
        except SelectionError as error:
            messages.error(request, str(error))
            return self._redirect_back(request)
        is_confirmed = "confirmed" in request.POST
        form = action.form(request.POST if is_confirmed else None) if action.form else None
        needs_confirmation = action.needs_confirmation or selection.is_all
        work = self._work(request, action, selection, form, alias)
        progress = self._progress(request, action, selection, alias)
        if progress.action_id and "stop" in request.POST:
            return self._report(request, action, selection, work.stop(progress))
        if selection.is_all and not progress.action_id:
            # Before the question: what is asked about is what is changed.
            progress = work.begin(progress)
        if (needs_confirmation and not is_confirmed) or (form is not None and not form.is_valid()):
            return self._confirm(request, action, selection, form, alias, progress)
        if not confirmation.is_number_typed(request, progress):
            return self._confirm(request, action, selection, form, alias, progress, is_mistyped="typed" in request.POST)
        return self._run(request, action, selection, form, work, progress)

    def _progress(self, request: HttpRequest, action: Action, selection: Selection, alias: str) -> BulkProgress:
        made_by = str(request.user.pk)
        if action_id := request.POST.get("progress"):
            return load_progress(alias, action_id, action.name, made_by, selection.search)
        return BulkProgress(action.name, made_by, search=selection.search)

    def _work(
        self, request: HttpRequest, action: Action, selection: Selection, form: forms.Form | None, alias: str
    ) -> BulkAction:
        data = form.cleaned_data if form and form.is_valid() else {}
        return BulkAction(
            call=action.make_call(data | {"by": request.user.get_username()}),
            criteria=selection.criteria,
            states=action.states,
            alias=alias,
            log=_make_log(request, action, selection, data),
        )

    def _confirm(
        self,
        request: HttpRequest,
        action: Action,
        selection: Selection,
        form: Any,
        alias: str,
        progress: BulkProgress,
        *,
        is_mistyped: bool = False,
    ) -> HttpResponse:
        """Show the jobs and the form of the action, and ask for confirmation."""
        if selection.is_all:
            asked = confirmation.of_collected(action, progress)
        else:
            asked = confirmation.of_selected(action, selection, alias)
        with databases.reading(alias) as (cursor, schema):
            if selection.is_all:
                ids = bulk_steps.examples(cursor, progress.owner.action_id, EXAMPLES, schema=schema)
            else:
                ids = search.find(cursor, selection.criteria, schema=schema, limit=EXAMPLES).ids
            rows = search.rows(cursor, ids, schema=schema)
        only = rows[0] if not selection.is_all and len(selection.criteria.ids) == 1 and rows else None
        name = f"{only.task_identifier or _('unknown task')} #{only.id}" if only else ""
        must_be_typed = selection.is_all and progress.asked > confirmation.MOST_UNTYPED
        hidden = [(name, value) for name, value in hidden_fields(request) if name != "typed"]
        context = {
            "title": asked.question(name),
            "action": action,
            "explanation": asked.explanation(name),
            "form": form,
            "total": asked.total or asked.is_minimum,
            "typed_number": formatting.number(asked.total) if must_be_typed else "",
            "is_mistyped": is_mistyped,
            "touched": asked.touched(),
            "untouched": "" if name else asked.untouched(),
            "description": selection.description,
            "job_name": name,
            "job_url": self.url(request, "job", "change", only.id) if only else "",
            "list_url": self.url(request, "job"),
            "rows": [self.job_row(request, row) for row in rows],
            "has_more": max(len(selection.criteria.ids), asked.total) > EXAMPLES or asked.is_minimum,
            "hidden_fields": [*hidden, *([("progress", progress.action_id)] if selection.is_all else [])],
            "act_url": self.url(request, "job", "act"),
            "back_url": self._back_url(request),
            "has_steps": asked.total > bulk_steps.STEP,
            "step": formatting.number(bulk_steps.STEP),
            "has_undo": asked.has_undo,
            "most_undone": formatting.number(undo.MAX_UNDONE),
        }
        return self.render(request, "confirm.html", context)

    def _run(
        self,
        request: HttpRequest,
        action: Action,
        selection: Selection,
        form: forms.Form | None,
        work: BulkAction,
        progress: BulkProgress,
    ) -> HttpResponse:
        try:
            progress = work.run(progress)
        except NoLowerPriorityError:
            message = _(
                "No jobs were changed. A job that waits has the priority %(priority)s, the lowest of all, so no job "
                "can run before it. Reschedule that job with a higher number first."
            )
            messages.error(request, message % {"priority": SMALLEST_PRIORITY})
            return self._redirect_back(request)
        if not (progress.is_finished or progress.is_stopped):
            return self._render_progress(request, action, progress, form)
        return self._report(request, action, selection, progress)

    def _report(
        self, request: HttpRequest, action: Action, selection: Selection, progress: BulkProgress
    ) -> HttpResponse:
        """Tell what the action has done, on the page from which it was begun."""
        if progress.is_stopped:
            messages.info(request, stopped_message(progress))
        selected = None if selection.is_all or progress.is_stopped else len(set(selection.criteria.ids))
        add_messages(request, self, action, progress, selected=selected)
        is_gone = not action.has_undo and len(progress.ids) == 1 and not progress.stopping
        if is_gone and self._back_url(request) == self.url(request, "job", "change", progress.ids[0]):
            # The page of the job would only say that the job does not exist.
            return HttpResponseRedirect(self.url(request, "job"))
        return self._redirect_back(request)

    def _render_progress(
        self, request: HttpRequest, action: Action, progress: BulkProgress, form: forms.Form | None
    ) -> HttpResponse:
        """Show the progress, with a form that continues the action."""
        continued = [("confirmed", "1"), ("progress", progress.action_id)]
        left = max(progress.found - progress.visited, 0)
        seconds = left * progress.seconds / progress.visited if progress.visited and progress.is_collected else None
        context = {
            "title": action.title,
            "done_message": done_message(action, progress),
            "notes": " ".join(notes(action, progress)),
            "has_timed_out": progress.has_timed_out,
            "visited": progress.visited,
            "found": progress.found,
            "visited_text": formatting.number(progress.visited),
            "found_text": formatting.number(progress.found),
            "is_collected": progress.is_collected,
            "time_left": formatting.duration(seconds, 1) if seconds else "",
            "hidden_fields": [*hidden_fields(request), *fields_to_send_again(form), *continued],
            "act_url": self.url(request, "job", "act"),
            "list_url": self.url(request, "job"),
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


def _make_log(
    request: HttpRequest, action: Action, selection: Selection, data: dict[str, Any]
) -> Callable[[BulkProgress, StepResult, PendingStep], None]:
    """Return a function that logs a step in the transaction of the step, so that it logs exactly what is committed."""
    message = log_message(action.name, action.title, data, selection.description)
    entry = audit.BulkEntry(request, Job, message, action.log_flag)

    def log(progress: BulkProgress, result: StepResult, step: PendingStep) -> None:
        if step.is_repeated and result.ids:
            again = audit.BulkEntry(request, Job, message, action.log_flag)
            again.write(result.ids, len(result.ids), is_last=True)
        elif progress.changed_now:
            entry.write(progress.ids, progress.changed_now, is_last=progress.visited >= progress.found)

    return log
