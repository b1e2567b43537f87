"""The view that exports the jobs that match a search as a file."""

from __future__ import annotations

from dataclasses import replace

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.utils.translation import gettext as _

from django_graphile_worker.admin import databases
from django_graphile_worker.admin.export import exported_jobs
from django_graphile_worker.admin.export.file_response import file_response
from django_graphile_worker.admin.jobs.job_list.list_view import JobListAdmin
from django_graphile_worker.admin.jobs.states import state_name
from django_graphile_worker.admin.pages import explain_database_errors
from django_graphile_worker.models import Job
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State
from django_graphile_worker.sql.inspection.job_search.sorts import sort_of


class JobExportAdmin(JobListAdmin):
    """The export of jobs: exactly those that match the search and the state, and that the user may see."""

    @explain_database_errors
    def export_view(self, request: HttpRequest) -> HttpResponseBase:
        self.require(self.has_view_permission(request))
        alias, text = databases.selected_alias(request), request.GET.get("q", "")
        with databases.reading(alias) as session:
            query = self.parse_query(request, session, text)
        state = self.requested_state(request.GET.get("state"), query.criteria)
        if query.mistakes:
            message = _("Nothing was exported. The search has a mistake, and without it more jobs would match.")
            messages.error(request, " ".join([message, *query.mistakes]))
            return HttpResponseRedirect(self.url(request, "job", q=text, state=request.GET.get("state")))
        criteria = replace(query.criteria, state=state, within=self.visible_ids(request, alias))
        order = sort_of(criteria, request.GET.get("sort"))
        sees_payloads = self.has_view_payload_permission(request)
        return file_response(
            request,
            exported_jobs.read_jobs(alias, criteria, order, sees_payloads=sees_payloads),
            exported_jobs.columns(sees_payloads=sees_payloads),
            name="jobs",
            model=Job,
            description=_description(text, criteria),
        )


def _description(text: str, criteria: Criteria) -> str:
    state = "" if criteria.state is State.ANY else state_name(criteria.state)
    return " ".join(filter(None, (state, text))) or _("all jobs")
