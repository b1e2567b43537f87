"""The actions on jobs: those of the list, the buttons of other pages, and the page of an action that is not over.

Each action first collects the ids of its jobs. Then the page of the action asks for confirmation, shows how far it has
got, and stops it. An action that needs no confirmation runs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from django_graphile_worker.admin import audit, databases, formatting
from django_graphile_worker.admin.jobs import bulk_action
from django_graphile_worker.admin.jobs.action_texts import (
    Confirmation,
    add_messages,
    done_message,
    is_number_typed,
    log_message,
    notes,
    stopped_message,
)
from django_graphile_worker.admin.jobs.bulk_action import BulkAction, BulkProgress, NoLowerPriorityError
from django_graphile_worker.admin.jobs.forms import fields_to_send_again
from django_graphile_worker.admin.jobs.job_actions import (
    ACTIONS,
    CANCEL,
    DELETE,
    FAIL,
    RESCHEDULE,
    RETRY,
    RUN_NEXT,
    RUN_NOW,
    Action,
    offered_actions,
)
from django_graphile_worker.admin.jobs.job_pages import JobPageAdmin
from django_graphile_worker.admin.jobs.search import LARGEST_ID, condition_of, parse_search
from django_graphile_worker.admin.jobs.states import state_name
from django_graphile_worker.admin.pages import explain_database_errors
from django_graphile_worker.admin.visible_jobs import NO_IDS, ids_subquery
from django_graphile_worker.job_options import SMALLEST_PRIORITY
from django_graphile_worker.models import Job
from django_graphile_worker.sql.inspection import job_list
from django_graphile_worker.sql.inspection.job_list import STATES, State, Subquery
from django_graphile_worker.sql.job_actions import bulk_steps
from django_graphile_worker.sql.job_actions.bulk_steps import PendingStep, StepResult

# How many jobs a confirmation shows.
EXAMPLES = 10
MAX_SELECTED = 1_000


def _action(action: Action) -> Any:
    """Return the method of an action, as Django's lists call it."""

    @admin.action(permissions=[action.permission], description=action.label)
    def perform(self: JobActionsAdmin, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse:
        is_all = request.POST.get("select_across") == "1"
        description = request.job_list.description() if is_all else ""  # type: ignore[attr-defined]
        selected = None if is_all else len(set(request.POST.getlist("_selected_action")))
        return self.begin(
            request, action, queryset, search=description, selected=selected, back=request.get_full_path()
        )

    return perform


class JobActionsAdmin(JobPageAdmin):
    """The actions. An action needs POST and its own permission, and is logged."""

    run_now = _action(RUN_NOW)
    run_next = _action(RUN_NEXT)
    retry = _action(RETRY)
    reschedule = _action(RESCHEDULE)
    fail = _action(FAIL)
    cancel = _action(CANCEL)
    delete = _action(DELETE)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Leave out the actions that do not work in the state of the list; those of a project stay."""
        state = request.GET.get("state", "")
        offered = offered_actions(self, request, State(state) if state in State._value2member_map_ else State.ANY)
        names = [each.name for each in offered]
        found = super().get_actions(request)
        of_django: Any = found.get("delete_selected")
        if of_django and of_django[0] is delete_selected:
            # It deletes rows; "delete" stands in its place.
            del found["delete_selected"]
        kept = {name: found[name] for name in names if name in found}
        return kept | {name: each for name, each in found.items() if name not in ACTIONS}

    def may_take(self, request: HttpRequest, action: Action) -> bool:
        """Return whether the user may take an action: a project may have removed it in ``get_actions``."""
        return action.is_allowed(self, request) and action.name in self.get_actions(request)

    def actions_of_job(self, request: HttpRequest, state: State) -> list[Action]:
        """Return the actions for a job in a state, for the buttons of its page."""
        return [each for each in offered_actions(self, request, state) if self.may_take(request, each)]

    @explain_database_errors
    def act_view(self, request: HttpRequest) -> HttpResponse:
        """Begin an action from another page: on a job, or on the jobs that match a search."""
        self.require(self.has_view_permission(request))
        name = request.POST.get("action", "")
        if name not in ACTIONS and name in self.get_actions(request):
            own: HttpResponse = self._perform_own(request, name)
            return own
        action = ACTIONS.get(name)
        if action is None:
            messages.info(request, _("Nothing was changed. Select the jobs and the action again."))
            return HttpResponseRedirect(self.url(request, "job"))
        self.require(self.may_take(request, action))
        back = self._back_url(request)
        jobs: QuerySet[Job] = self.get_queryset(request)
        if "all" not in request.POST:
            ids = selected_ids(request.POST.getlist("id"))
            return self.begin(request, action, jobs.filter(pk__in=ids), selected=len(ids), back=back)
        text = request.POST.get("q", "").replace("\x00", "")
        search = parse_search(text, self.names(request))  # type: ignore[attr-defined]
        if search.errors or search.condition:
            messages.error(request, " ".join([_("No jobs were changed: the search has an error."), *search.errors]))
            return HttpResponseRedirect(back)
        state = request.POST.get("state", "")
        criteria = search.criteria
        if state in State._value2member_map_ and criteria.state is State.ANY:
            criteria = replace(criteria, state=State(state))
        return self.begin(request, action, jobs.filter(condition_of(criteria)), search=text, back=back)

    def own_actions(self, request: HttpRequest) -> list[tuple[str, str]]:
        """Return the names and labels of the actions of the project."""
        found = self.get_actions(request)
        return [(name, str(label)) for name, (_function, _name, label) in found.items() if name not in ACTIONS]

    def _perform_own(self, request: HttpRequest, name: str) -> Any:
        """Take an action of the project for the job of a page."""
        perform, _name, _label = self.get_actions(request)[name]
        ids = selected_ids([*request.POST.getlist("id"), *request.POST.getlist(ACTION_CHECKBOX_NAME)])
        response = perform(self, request, self.get_queryset(request).filter(pk__in=ids))
        return response if isinstance(response, HttpResponseBase) else HttpResponseRedirect(self._back_url(request))

    def begin(
        self, request: HttpRequest, action: Action, jobs: QuerySet[Job], *, search: str = "",
        selected: int | None = None, back: str,
    ) -> HttpResponse:  # fmt: skip
        """Collect the jobs. Run the action at once, or go to its page."""
        alias = databases.selected_alias(request)
        if selected == 0:
            messages.warning(request, _("Select jobs, or all that match."))
            return HttpResponseRedirect(back)
        progress = bulk_action.begin(
            alias, action.name, str(request.user.pk), action.states, subquery_of(jobs, alias),
            search=search, selected=selected, back=back,
        )  # fmt: skip
        if action.needs_confirmation or search:
            return HttpResponseRedirect(self.url(request, "job", "action", progress.action_id))
        return self._run(request, action, self._confirmed(request, progress, {}))

    def _confirmed(self, request: HttpRequest, progress: BulkProgress, data: dict[str, str]) -> BulkProgress:
        """Store that the action is confirmed. Another tab may have been first: then its form and its steps count."""
        alias = databases.selected_alias(request)
        with databases.writing(alias) as (cursor, schema):
            stored = replace(progress, data=data).stored()
            bulk_steps.confirm_action(cursor, progress.owner, stored, schema=schema)
        return bulk_action.load(alias, progress.owner.action_id, progress.made_by)

    @explain_database_errors
    def action_view(self, request: HttpRequest, action_id: UUID) -> HttpResponse:
        """Show an action, and confirm, continue or stop it."""
        self.require(self.has_view_permission(request))
        alias = databases.selected_alias(request)
        progress = bulk_action.load(alias, action_id, str(request.user.pk))
        action = ACTIONS[progress.action]
        self.require(self.may_take(request, action))
        if request.method != "POST":
            if progress.is_confirmed:
                return self._render_progress(request, action, progress)
            return self._confirm(request, action, progress, action.form() if action.form else None)
        if "stop" in request.POST and progress.is_confirmed:
            return self._report(request, action, self._work(request, action, progress).stop(progress))
        if not progress.is_confirmed:
            form = action.form(request.POST) if action.form else None
            if form is not None and not form.is_valid():
                return self._confirm(request, action, progress, form)
            if not is_number_typed(request, progress):
                return self._confirm(request, action, progress, form, is_mistyped="typed" in request.POST)
            progress = self._confirmed(request, progress, dict(fields_to_send_again(form)))
        return self._run(request, action, progress)

    def _run(self, request: HttpRequest, action: Action, progress: BulkProgress) -> HttpResponse:
        try:
            progress = self._work(request, action, progress).run(progress)
        except NoLowerPriorityError:
            message = _(
                "No jobs were changed. A job that waits has the priority %(priority)s, the lowest of all, so no job "
                "can run before it. Reschedule that job with a higher number first."
            )
            messages.error(request, message % {"priority": SMALLEST_PRIORITY})
            return HttpResponseRedirect(progress.back)
        if not (progress.is_finished or progress.is_stopped):
            return self._render_progress(request, action, progress)
        return self._report(request, action, progress)

    def _work(self, request: HttpRequest, action: Action, progress: BulkProgress) -> BulkAction:
        form = action.form(progress.data) if action.form else None
        data = form.cleaned_data if form and form.is_valid() else {}
        alias = databases.selected_alias(request)
        jobs: QuerySet[Job] = self.get_queryset(request)
        is_restricted = ids_subquery(jobs, alias) is not None

        def visible(ids: Sequence[int]) -> Sequence[int]:
            return list(jobs.filter(pk__in=ids).values_list("pk", flat=True)) if is_restricted else ids

        return BulkAction(
            call=action.make_call(data | {"by": request.user.get_username()}),
            alias=alias,
            visible=visible,
            log=_make_log(request, action, progress, data),
        )

    def _confirm(
        self, request: HttpRequest, action: Action, progress: BulkProgress, form: Any, *, is_mistyped: bool = False
    ) -> HttpResponse:
        """Show some of the jobs and the form of the action, and ask for confirmation."""
        asked = Confirmation(action, {state: progress.counts[state] for state in STATES if state in progress.counts})
        with databases.reading(databases.selected_alias(request)) as (cursor, schema):
            ids = bulk_steps.examples(cursor, progress.owner.action_id, EXAMPLES, schema=schema)
            rows = job_list.rows(cursor, ids, schema=schema)
        visible = self.visible_among(request, ids)
        rows = [row for row in rows if row.id in visible]
        only = rows[0] if progress.selected == 1 and rows else None
        name = f"{only.task_identifier or _('unknown task')} #{only.id}" if only else ""
        is_typed = progress.selected is None and not is_number_typed(None, progress)
        context = {
            "title": asked.question(name),
            "action": action,
            "explanation": asked.explanation(name),
            "form": form,
            "total": asked.total,
            "typed_number": formatting.number(asked.total) if is_typed else "",
            "is_mistyped": is_mistyped,
            "touched": asked.touched(),
            "untouched": "" if name else asked.untouched(),
            "description": progress.search,
            "job_name": name,
            "job_url": self.url(request, "job", "change", only.id) if only else "",
            "list_url": self.url(request, "job"),
            "rows": [(row, self.url(request, "job", "change", row.id), state_name(row.state)) for row in rows],
            "has_more": asked.total > len(rows),
            "back_url": progress.back,
            "has_steps": asked.total > bulk_steps.STEP,
            "step": formatting.number(bulk_steps.STEP),
        }
        return self.render(request, "confirm.html", context)

    def _report(self, request: HttpRequest, action: Action, progress: BulkProgress) -> HttpResponse:
        """Say what the action has done, on the page from which it was begun."""
        if progress.is_stopped:
            messages.info(request, stopped_message(progress))
        add_messages(request, self, action, progress)
        is_gone = action.log_flag == audit.DELETION and len(progress.ids) == 1 and not progress.stopping
        if is_gone and progress.back == self.url(request, "job", "change", progress.ids[0]):
            # The page of the job would only say that the job does not exist.
            return HttpResponseRedirect(self.url(request, "job"))
        return HttpResponseRedirect(progress.back)

    def _render_progress(self, request: HttpRequest, action: Action, progress: BulkProgress) -> HttpResponse:
        """Show the progress, with a form that continues the action."""
        left = max(progress.found - progress.visited, 0)
        seconds = left * progress.seconds / progress.visited if progress.visited else None
        context = {
            "title": action.title,
            "done_message": done_message(action, progress),
            "notes": " ".join(notes(action, progress)),
            "has_timed_out": progress.has_timed_out,
            "visited": progress.visited,
            "found": progress.found,
            "visited_text": formatting.number(progress.visited),
            "found_text": formatting.number(progress.found),
            "time_left": formatting.duration(seconds, 1) if seconds else "",
            "action_url": self.url(request, "job", "action", progress.action_id),
            "list_url": self.url(request, "job"),
        }
        return self.render(request, "progress.html", context, status=503 if progress.has_timed_out else 200)

    def _back_url(self, request: HttpRequest) -> str:
        back = request.POST.get("back", "").replace("\x00", "")
        hosts = {request.get_host()}
        if back.startswith("/") and url_has_allowed_host_and_scheme(back, hosts, require_https=request.is_secure()):
            return back
        return self.url(request, "job")


def selected_ids(values: Sequence[str]) -> list[int]:
    """Return the ids of a form, each once."""
    texts = [value for value in values[:MAX_SELECTED] if value.isascii() and value.isdigit() and len(value) <= 19]
    ids = dict.fromkeys(map(int, texts))
    return [each for each in ids if 0 < each <= LARGEST_ID]


def subquery_of(jobs: QuerySet[Job], alias: str) -> Subquery:
    """Return the statement that selects the ids of the jobs."""
    return ids_subquery(jobs.filter(pk__gt=0), alias) or NO_IDS


def _make_log(
    request: HttpRequest, action: Action, progress: BulkProgress, data: dict[str, Any]
) -> Callable[[BulkProgress, StepResult, PendingStep], None]:
    """Return a function that logs a step in the transaction of the step, so that it logs exactly what is committed."""
    message = log_message(action.name, action.title, data, progress.search)
    entry = audit.BulkEntry(request, Job, message, action.log_flag)

    def log(progress: BulkProgress, result: StepResult, step: PendingStep) -> None:
        if step.is_repeated and result.ids:
            again = audit.BulkEntry(request, Job, message, action.log_flag)
            again.write(result.ids, len(result.ids), is_last=True)
        elif progress.changed_now:
            entry.write(progress.ids, progress.changed_now, is_last=progress.visited >= progress.found)

    return log
