"""The list of jobs: tabs by state, search, pages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_graphile_worker import registry
from django_graphile_worker.admin import databases, error_summary, formatting
from django_graphile_worker.admin.jobs.actions.job_actions import ACTIONS
from django_graphile_worker.admin.jobs.detail.outcome import shown_progress
from django_graphile_worker.admin.jobs.pagination import JobsPage, read_page
from django_graphile_worker.admin.jobs.search_view import JobSearchAdmin
from django_graphile_worker.admin.jobs.states import flag_names, list_description, state_name
from django_graphile_worker.admin.pages import explain_database_errors
from django_graphile_worker.admin.search.conditions import examples
from django_graphile_worker.admin.search.job_search import SearchQuery
from django_graphile_worker.admin.search.search_query import SearchTerm, join_terms
from django_graphile_worker.progress import Progress
from django_graphile_worker.sql.inspection import names, search
from django_graphile_worker.sql.inspection.counts import Count, count_states
from django_graphile_worker.sql.inspection.criteria import State
from django_graphile_worker.task_labels import DEFAULT_LABEL, label_of, split_identifier

PAGE_SIZE = 50
# A tab shows "1,000+" for more jobs.
MOST_COUNTED = 1_000
TABS = (State.ANY, State.READY, State.LIMITED, State.SCHEDULED, State.RUNNING, State.RETRYING, State.FAILED)
# The fields of the filter form, each the name of a search term.
FILTERS = ("task", "label", "queue", "flag", "priority", "attempts", "created")


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as the list shows it."""

    id: int
    url: str
    task: str
    task_url: str
    # Of a Django task, unless it is the label "default".
    label: str
    label_url: str
    state: State
    state_name: str
    queue: str | None
    queue_url: str
    priority: int
    attempts: str
    time: SafeString | str
    key: str | None
    flags: list[str]
    error: error_summary.ErrorSummary
    progress: Progress | None


class JobListAdmin(JobSearchAdmin):
    """The list of jobs, and the permissions of all pages about jobs. Every page of the list takes the same time."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_app_permission(request, "add_job")

    def has_reschedule_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_app_permission(request, "reschedule_job")

    def has_complete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_app_permission(request, "complete_job")

    def has_cancel_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_app_permission(request, "cancel_job")

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        if redirect := self._apply_filters(request):
            return redirect
        alias = databases.selected_alias(request)
        with databases.reading(alias) as session:
            cursor, schema = session
            query = self.parse_query(request, session, request.GET.get("q", ""))
            state = self.requested_state(request.GET.get("state"), query.criteria)
            criteria = replace(query.criteria, state=state, within=self.visible_ids(request, alias))
            counts = count_states(cursor, criteria, schema=schema, most=MOST_COUNTED)
            positions = {name: request.GET.get(name) for name in ("after", "before")}
            page = read_page(session, criteria, limit=PAGE_SIZE, **positions)
            rows = search.rows(cursor, page.ids, schema=schema)
            known_tasks = names.known_tasks(cursor, schema=schema)
            nothing = {} if rows or page.examined else self.found_nothing(request, session, query, criteria)
        context = {
            **nothing,
            **self._search_context(request, query, state, counts),
            **self._page_urls(request, query, state, page),
            "rows": [self.job_row(request, row) for row in rows],
            "known_tasks": known_tasks,
            "known_labels": sorted({label_of(task) for task in known_tasks} - {DEFAULT_LABEL}),
            "examined": page.examined and f"{page.examined:,}",
            "actions": [each for each in ACTIONS.values() if each.is_allowed(self, request)],
            "act_url": self.url(request, "job", "act"),
            "add_url": self.url(request, "job", "add") if self.has_add_permission(request) else "",
            "may_select_all": not query.mistakes and (bool(page.after or page.before) or len(rows) > 1),
            "total": formatting.count(counts.get(state)),
        }
        return self.render(request, "jobs.html", context)

    def _apply_filters(self, request: HttpRequest) -> HttpResponse | None:
        """Redirect to the list with the fields of the filter form as search terms; None when all fields are empty."""
        values = {name: request.GET.get(f"filter_{name}", "").strip() for name in FILTERS}
        terms = [SearchTerm(name, value.replace("\x00", "")) for name, value in values.items() if value]
        if not terms:
            return None
        text = f"{request.GET.get('q', '')} {join_terms(terms)}".strip()
        return HttpResponseRedirect(self.url(request, "job", q=text, state=request.GET.get("state")))

    def _search_context(
        self, request: HttpRequest, query: SearchQuery, state: State, counts: dict[State, Count]
    ) -> dict[str, Any]:
        text = _text(request, query)
        return {
            "subtitle": list_description(state, query.criteria),
            "tabs": self._tabs(request, query, state, counts),
            "state": state.value,
            "query": text,
            "terms": self.terms(request, query, state),
            "mistakes": query.mistakes,
            "examples": examples(),
            "complete_url": self.url(request, "job", "complete"),
        }

    def _page_urls(self, request: HttpRequest, query: SearchQuery, state: State, page: JobsPage) -> dict[str, str]:
        text = _text(request, query)
        is_first = not (request.GET.get("after") or request.GET.get("before"))
        return {
            "next_url": self.search_url(request, text, state, after=page.after) if page.after else "",
            "previous_url": self.search_url(request, text, state, before=page.before) if page.before else "",
            "first_url": "" if is_first else self.search_url(request, text, state),
        }

    def _tabs(
        self, request: HttpRequest, query: SearchQuery, current: State, counts: dict[State, Count]
    ) -> list[dict[str, Any]]:
        text = _text(request, query) if query.mistakes else query.without_states()
        shown = State.ANY if current is State.FAILING else current
        return [
            {
                "name": state_name(state),
                "url": self.search_url(request, text, state),
                "count": formatting.count(counts.get(state)),
                "is_current": state is shown,
                "state": state.value,
            }
            for state in TABS
            if state is not State.LIMITED or state is shown or _are_limits_used(counts.get(state))
        ]

    def job_row(self, request: HttpRequest, row: search.JobRow) -> JobRow:
        sees_payloads = self.has_view_payload_permission(request)
        task, label = split_identifier(row.task_identifier or "")
        return JobRow(
            id=row.id,
            url=self.url(request, "job", "change", quote(str(row.id))),
            task=task or _("unknown task"),
            task_url=self.url(request, "job", q=str(SearchTerm("task", row.task_identifier or "?"))),
            label="" if label == DEFAULT_LABEL else label,
            label_url=self.url(request, "job", q=str(SearchTerm("label", label))),
            state=row.state,
            state_name=state_name(row.state),
            queue=row.queue_name,
            queue_url=self.url(request, "job", q=str(SearchTerm("queue", row.queue_name or "?"))),
            priority=row.priority,
            attempts=f"{row.attempts_made}/{row.max_attempts}",
            time=formatting.relative_time(row.moment),
            key=row.key,
            flags=flag_names(row.flags_text),
            error=error_summary.summarize(row.error, sees_payloads=sees_payloads),
            progress=shown_progress(row.progress, sees_payloads=sees_payloads),
        )


def _are_limits_used(limited: Count | None) -> bool:
    """Return whether the project has limits, or a worker of another project has jobs that wait for its limits."""
    return registry.tasks.has_limits or (limited is not None and limited.number > 0)


def _text(request: HttpRequest, query: SearchQuery) -> str:
    """Return the text of the search box. A mistake stays there, so that it blocks actions on all jobs that match."""
    return request.GET.get("q", "") if query.mistakes else str(query)
