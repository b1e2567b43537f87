"""The errors page: jobs that fail in the same way, as groups by exception, over all tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy

from django_graphile_worker.admin import databases, error_summary, formatting
from django_graphile_worker.admin.jobs.job_actions import ACTIONS, Action
from django_graphile_worker.admin.pages import PageAdmin, explain_database_errors
from django_graphile_worker.admin.search_terms import MAX_TERMS, SearchTerm, join_terms
from django_graphile_worker.models import Job
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.sql.inspection import error_groups
from django_graphile_worker.sql.inspection.error_groups import ErrorGroup
from django_graphile_worker.sql.inspection.job_list import Count, State, Subquery

PAGE_SIZE = 50
# How many pairs of a task and an exception are read, grouped and searched.
MAX_PAIRS = 500
# A row lists so many tasks; more are folded away.
MAX_TASKS = 3
# What a group offers. Jobs that have failed permanently cannot be failed: a group without others does not offer that.
GROUP_ACTIONS = {
    "retry": gettext_lazy("Retry all…"),
    "fail": gettext_lazy("Fail all…"),
    "delete": gettext_lazy("Delete all…"),
}


@dataclass(frozen=True, slots=True)
class NamedErrors:
    """The jobs whose errors have the same name, by task; the task with most jobs first."""

    name: str
    of_tasks: Sequence[ErrorGroup]
    # Whether a search has left out other tasks with this exception.
    is_part: bool

    @property
    def number(self) -> int:
        return sum(each.number for each in self.of_tasks)

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.of_tasks)

    @property
    def is_more(self) -> bool:
        return any(each.is_more for each in self.of_tasks)

    @property
    def latest(self) -> ErrorGroup:
        return max(self.of_tasks, key=lambda each: (each.last_seen, each.latest_id))

    @property
    def query(self) -> str:
        """The search for the jobs; "" if it would have too many conditions."""
        tasks = [SearchTerm("task", each.task_identifier) for each in self.of_tasks] if self.is_part else []
        return join_terms([*tasks, SearchTerm("exception", self.name)]) if len(tasks) < MAX_TERMS else ""


def by_exception(pairs: Iterable[ErrorGroup], search: str = "") -> list[NamedErrors]:
    """Return the groups, the largest first: those whose exceptions match a search whole, of others matching tasks."""
    by_name: dict[str, list[ErrorGroup]] = {}
    for pair in pairs:
        by_name.setdefault(pair.name, []).append(pair)
    wanted, found = search.lower(), []
    for name, all_of_name in by_name.items():
        is_match = wanted in name.lower()
        of_tasks = [each for each in all_of_name if is_match or wanted in each.task_identifier.lower()]
        if of_tasks:
            of_tasks.sort(key=lambda each: (-each.number, each.task_identifier))
            found.append(NamedErrors(name, of_tasks, is_part=len(of_tasks) < len(all_of_name)))
    return sorted(found, key=lambda group: (-group.number, group.name))


class ErrorGroupAdmin(PageAdmin):
    """Jobs in groups by exception. A whole group can be retried, failed or deleted."""

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        alias = databases.selected_alias(request)
        visible_ids = self.visible_ids(request, alias)
        search = request.GET.get("q", "").replace("\x00", "").strip()[:200]
        pairs = _read_pairs(alias, visible_ids)
        groups = by_exception(self._searchable(request, pairs), search)
        number, last = _page_number(request.GET.get("page", "")), max(-(-len(groups) // PAGE_SIZE), 1)
        number = min(number, last)
        shown, actions = groups[(number - 1) * PAGE_SIZE : number * PAGE_SIZE], self._actions(request)
        back = self.url(request, "errorgroup", q=search, page=number if number > 1 else None)
        context = {
            "query": search,
            "groups": [self._row(request, each, actions) for each in shown],
            "has_actions": bool(actions),
            "state": State.FAILING.value,
            "act_url": self.url(request, "job", "act"),
            "back": back,
            "previous_url": self.url(request, "errorgroup", q=search, page=number - 1) if number > 1 else "",
            "next_url": self.url(request, "errorgroup", q=search, page=number + 1) if number < last else "",
            "has_more": len(pairs) >= MAX_PAIRS,
            "most": formatting.number(MAX_PAIRS),
            "is_restricted": visible_ids is not None,
            "most_examined": formatting.number(error_groups.MAX_EXAMINED),
        }
        return self.render(request, "errors.html", context)

    def _searchable(self, request: HttpRequest, pairs: Sequence[ErrorGroup]) -> Sequence[ErrorGroup]:
        """Return the pairs; without a permission, a search must not find names by what is hidden in them."""
        if self.has_app_permission(request, "view_payload") or not request.GET.get("q"):
            return pairs
        return [pair for pair in pairs if redact_text(pair.name) == pair.name]

    def _actions(self, request: HttpRequest) -> list[Action]:
        jobs: Any = self.admin_site._registry.get(Job)
        if jobs is None or not jobs.has_view_permission(request):
            return []
        return [ACTIONS[name] for name in GROUP_ACTIONS if jobs.may_take(request, ACTIONS[name])]

    def _row(self, request: HttpRequest, group: NamedErrors, actions: Sequence[Action]) -> dict[str, Any]:
        row, retrying = error_row(self, request, group), group.number - group.failed
        query = row["query"]
        offered = [each for each in actions if query and (retrying or each.name != "fail")]
        tasks = [self._task(request, each, has_url=bool(query)) for each in group.of_tasks]
        return row | {
            "failed": formatting.number(group.failed) if group.failed else "",
            "retrying": formatting.number(retrying) if retrying else "",
            "failed_url": self.url(request, "job", q=query, state=State.FAILED.value) if query else "",
            "retrying_url": self.url(request, "job", q=f"{query} -state:failed") if query else "",
            "first_seen": formatting.relative_time(min(each.first_seen for each in group.of_tasks)),
            "actions": [
                {"name": each.name, "label": GROUP_ACTIONS[each.name], "is_destructive": each.is_destructive}
                for each in offered
            ],
            "tasks": tasks[:MAX_TASKS],
            "more_tasks": tasks[MAX_TASKS:],
        }

    def _task(self, request: HttpRequest, of_task: ErrorGroup, *, has_url: bool) -> dict[str, str]:
        name = of_task.task_identifier
        terms = [SearchTerm("task", name), SearchTerm("exception", of_task.name)]
        return {
            "name": name,
            "url": self.url(request, "overview", task=name),
            "number": formatting.count(Count(of_task.number, of_task.is_more)),
            "jobs_url": self.url(request, "job", q=join_terms(terms)) if has_url else "",
        }


def error_row(page: PageAdmin, request: HttpRequest, group: NamedErrors) -> dict[str, Any]:
    """Return the name of an exception, its latest message, and its jobs, as the templates show them."""
    sees_payloads = page.has_app_permission(request, "view_payload")
    name, latest = group.name if sees_payloads else redact_text(group.name), group.latest
    short_name = error_summary.short_name(name)
    summary = error_summary.summarize(latest.latest_error, sees_payloads=sees_payloads)
    # A name that contains a secret must not be in a URL either.
    query = group.query if name == group.name else ""
    return {
        "name": short_name,
        "path": name,
        "message": error_summary.without_name(summary.text, short_name),
        "number": formatting.count(Count(group.number, group.is_more)),
        "last_seen": formatting.relative_time(latest.last_seen),
        "latest_id": latest.latest_id,
        "latest_url": page.url(request, "job", "change", latest.latest_id),
        "jobs_url": page.url(request, "job", q=query) if query else "",
        "query": query,
    }


def _read_pairs(alias: str, visible_ids: Subquery | None) -> Sequence[ErrorGroup]:
    with databases.reading(alias) as (cursor, schema):
        if visible_ids is None:
            return error_groups.error_groups(cursor, schema=schema, most_groups=MAX_PAIRS)
        return error_groups.error_groups_within(cursor, visible_ids, schema=schema, most_groups=MAX_PAIRS)


def _page_number(text: str) -> int:
    return max(int(text), 1) if text.isdecimal() and len(text) < 6 else 1
