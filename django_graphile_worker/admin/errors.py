"""The errors page: jobs that fail in the same way, as groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse

from django_graphile_worker.admin import databases, error_summary, formatting
from django_graphile_worker.admin.jobs.actions.job_actions import ACTIONS, Action
from django_graphile_worker.admin.pages import PageAdmin, explain_database_errors
from django_graphile_worker.admin.search.search_query import SearchTerm, join_terms
from django_graphile_worker.models import Job
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.sql.inspection import error_groups
from django_graphile_worker.sql.inspection.job_search.criteria import State, Subquery

# Jobs that have failed permanently cannot be failed: a group without others does not offer it.
GROUP_ACTIONS = ("retry", "fail", "delete")


class ErrorGroupAdmin(PageAdmin):
    """Jobs in groups by task and exception. A whole group can be retried, failed or deleted."""

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        alias = databases.selected_alias(request)
        visible_ids = self.visible_ids(request, alias)
        groups = _read_groups(alias, visible_ids)
        context = {
            "groups": [self._row(request, group) for group in groups],
            "actions": self._actions(request),
            "state": State.FAILING.value,
            "act_url": self.url(request, "job", "act"),
            "back": self.url(request, "errorgroup"),
            "has_more": len(groups) >= error_groups.MAX_GROUPS,
            "most": error_groups.MAX_GROUPS,
            "is_restricted": visible_ids is not None,
            "most_examined": formatting.number(error_groups.MAX_EXAMINED),
        }
        return self.render(request, "errors.html", context)

    def _actions(self, request: HttpRequest) -> list[Action]:
        jobs = self.admin_site._registry.get(Job)
        if jobs is None or not jobs.has_view_permission(request):
            return []
        return [ACTIONS[name] for name in GROUP_ACTIONS if ACTIONS[name].is_allowed(jobs, request)]

    def _row(self, request: HttpRequest, group: error_groups.ErrorGroup) -> dict[str, Any]:
        sees_payloads = self.has_app_permission(request, "view_payload")
        summary = error_summary.summarize(group.latest_error, sees_payloads=sees_payloads)
        name = group.name if sees_payloads else redact_text(group.name)
        query = join_terms([SearchTerm("task", group.task_identifier), SearchTerm("exception", group.name)])
        # A name that contains a secret must not be in an address either.
        query = query if name == group.name else ""
        return {
            "task": group.task_identifier,
            "name": error_summary.short_name(name),
            "path": name,
            "number": formatting.number(group.number) + ("+" if group.is_more else ""),
            "failed": formatting.number(group.failed),
            "retrying": formatting.number(group.retrying),
            "first_seen": formatting.relative_time(group.first_seen),
            "last_seen": formatting.relative_time(group.last_seen),
            "message": error_summary.without_name(summary.text, error_summary.short_name(name)),
            "latest_id": group.latest_id,
            "latest_url": self.url(request, "job", "change", group.latest_id),
            "jobs_url": self.url(request, "job", q=query) if query else "",
            "failed_url": self.url(request, "job", q=query, state=State.FAILED.value) if query else "",
            "retrying_url": self.url(request, "job", q=f"{query} -state:failed") if query else "",
            "query": query,
        }


def _read_groups(alias: str, visible_ids: Subquery | None) -> Sequence[error_groups.ErrorGroup]:
    with databases.reading(alias) as (cursor, schema):
        if visible_ids is None:
            return error_groups.error_groups(cursor, schema=schema)
        return error_groups.error_groups_within(cursor, visible_ids, schema=schema)
