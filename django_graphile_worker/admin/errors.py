"""Errors: jobs that fail in the same way, together."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy

from django_graphile_worker.admin import databases, error_summary, formatting
from django_graphile_worker.admin.jobs.actions import ACTIONS
from django_graphile_worker.admin.pages import Page, page
from django_graphile_worker.admin.search import SearchTerm, join
from django_graphile_worker.models import Job
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.sql.inspection import error_groups
from django_graphile_worker.sql.inspection.criteria import State

GROUP_ACTIONS = ("run", "fail")


class ErrorGroupAdmin(Page):
    """Groups by task and exception; a whole group is retried or given up at once."""

    page_title = gettext_lazy("Errors")

    @page
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        alias = databases.alias_of(request)
        within = self.within(request, alias)
        with databases.reading(alias) as (cursor, schema):
            if within is None:
                groups = error_groups.error_groups(cursor, schema=schema)
            else:
                groups = error_groups.error_groups_within(cursor, within, schema=schema)
        jobs = self.admin_site._registry.get(Job)
        sees_jobs = jobs is not None and jobs.has_view_permission(request)
        actions = [ACTIONS[name] for name in GROUP_ACTIONS if sees_jobs and ACTIONS[name].is_allowed(jobs, request)]
        context = {
            "groups": [self._line(request, group) for group in groups],
            "actions": actions,
            "state": State.FAILING.value,
            "act_url": self.url(request, "job", "act"),
            "back": self.url(request, "errorgroup"),
            "is_cut": len(groups) >= error_groups.MOST_GROUPS,
            "most": error_groups.MOST_GROUPS,
            "is_restricted": within is not None,
            "most_looked_at": f"{error_groups.MOST_LOOKED_AT:,}",
        }
        return self.render(request, "errors.html", context)

    def _line(self, request: HttpRequest, group: error_groups.ErrorGroup) -> dict[str, Any]:
        sees = self.may(request, "view_payload")
        said = error_summary.summary(group.latest_error, sees_payloads=sees)
        name = group.name if sees else redact_text(group.name)
        query = join([SearchTerm("task", group.task_identifier), SearchTerm("exception", group.name)])
        # A name that holds a secret must not be in an address either.
        query = query if name == group.name else ""
        return {
            "task": group.task_identifier,
            "name": error_summary.short_name(name),
            "path": name,
            "number": f"{group.number:,}{'+' if group.is_more else ''}",
            "failed": f"{group.failed:,}",
            "retrying": f"{group.retrying:,}",
            "first_seen": formatting.moment(group.first_seen),
            "last_seen": formatting.moment(group.last_seen),
            "message": error_summary.without_name(said.text, error_summary.short_name(name)),
            "latest_id": group.latest_id,
            "latest_url": self.url(request, "job", "change", group.latest_id),
            "jobs_url": self.url(request, "job", q=query) if query else "",
            "query": query,
        }
