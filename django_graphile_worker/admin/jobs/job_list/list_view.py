"""The list of jobs: tabs by state, search, pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.contrib.admin.models import LogEntry
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from django_graphile_worker import registry
from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.jobs import failure_times
from django_graphile_worker.admin.jobs.actions.job_actions import offered_actions
from django_graphile_worker.admin.jobs.job_list.job_rows import JobRow, make_row
from django_graphile_worker.admin.jobs.job_list.list_options import (
    SIZES,
    ListOptions,
    headers,
    read_options,
    shown_columns,
)
from django_graphile_worker.admin.jobs.job_list.list_totals import Total, list_total
from django_graphile_worker.admin.jobs.job_list.pagination import JobsPage, read_page
from django_graphile_worker.admin.jobs.job_list.search_view import JobSearchAdmin
from django_graphile_worker.admin.jobs.states import list_description, state_name
from django_graphile_worker.admin.pages import explain_database_errors
from django_graphile_worker.admin.saved_views.saved_view_links import saved_view_links
from django_graphile_worker.admin.saved_views.saved_views import visible_views
from django_graphile_worker.admin.search.conditions import examples
from django_graphile_worker.admin.search.job_search import SearchQuery
from django_graphile_worker.admin.search.search_query import SearchTerm, join_terms
from django_graphile_worker.registry import DEFAULT_LABEL, label_of
from django_graphile_worker.sql.inspection import job_detail
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.counts import Count, count_states
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State

# A tab shows "1,000+" for more jobs.
MOST_COUNTED = 1_000
TABS = (State.ANY, State.READY, State.LIMITED, State.SCHEDULED, State.RUNNING, State.RETRYING, State.FAILED)
# The fields of the filter form, each the name of a search term.
FILTERS = ("task", "label", "queue", "flag", "priority", "attempts", "created")


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
            all_states = list_total(session, replace(criteria, state=State.ANY), counts)
            total = all_states if state is State.ANY else list_total(session, criteria, counts)
            options = read_options(request, criteria)
            positions = {name: request.GET.get(name) for name in ("after", "before")}
            page = read_page(
                session, criteria, limit=options.size, order=options.order if options.sort else None, **positions
            )
            rows = search.rows(cursor, page.ids, schema=schema)
            payloads = self._payload_beginnings(request, session, options, page)
            known_tasks = self.names(request, session).tasks
            nothing = {} if rows or page.examined else self.found_nothing(request, session, query, criteria)
            views = visible_views(request)
        context = {
            **nothing,
            **self._search_context(request, query, criteria, options),
            "tabs": self._tabs(request, query, state, counts, all_states),
            **self._page_urls(request, query, state, page, options),
            "rows": self._job_rows(request, rows, payloads),
            "known_tasks": known_tasks,
            "saved_views": saved_view_links(request, views, self.url(request, "job")),
            "known_labels": sorted({label_of(task) for task in known_tasks} - {DEFAULT_LABEL}),
            "examined": page.examined and formatting.number(page.examined),
            "actions": offered_actions(self, request, state),
            "act_url": self.url(request, "job", "act"),
            "add_url": self.url(request, "job", "add") if self.has_add_permission(request) else "",
            "may_select_all": not query.mistakes and (bool(page.after or page.before) or len(rows) > 1),
            "total": total,
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

    def _payload_beginnings(
        self, request: HttpRequest, session: databases.Session, options: ListOptions, page: JobsPage
    ) -> dict[int, str | None]:
        """Read the beginnings of payloads, if the list shows them."""
        sees_payloads = self.has_view_payload_permission(request)
        if "payload" not in shown_columns(options, sees_payloads=sees_payloads):
            return {}
        return job_detail.payload_beginnings(session.cursor, page.ids, schema=session.schema)

    def _search_context(
        self, request: HttpRequest, query: SearchQuery, criteria: Criteria, options: ListOptions
    ) -> dict[str, Any]:
        text, state, parameters = _text(request, query), criteria.state, options.parameters
        sees_payloads = self.has_view_payload_permission(request)
        return {
            "subtitle": "" if options.sort else list_description(state, query.criteria),
            "state": state.value,
            "query": text,
            "terms": self.terms(request, query, state),
            "mistakes": query.mistakes,
            "sort": options.sort,
            "headers": headers(
                criteria,
                options,
                lambda sort: self.search_url(request, text, state, **(parameters | {"sort": sort})),
                sees_payloads=sees_payloads,
            ),
            "columns": shown_columns(options, sees_payloads=sees_payloads),
            "sees_payloads": sees_payloads,
            "size": options.size,
            "sizes": SIZES,
            "examples": examples(),
            "complete_url": self.url(request, "job", "complete"),
        }

    def _page_urls(
        self, request: HttpRequest, query: SearchQuery, state: State, page: JobsPage, options: ListOptions
    ) -> dict[str, str]:
        text, parameters = _text(request, query), options.parameters
        is_first = not (request.GET.get("after") or request.GET.get("before"))
        shown = {"q": text, "state": None if state in (State.ANY, State.FAILING) else state.value} | parameters
        return {
            "next_url": self.search_url(request, text, state, **parameters, after=page.after) if page.after else "",
            "previous_url": self.search_url(request, text, state, **parameters, before=page.before)
            if page.before
            else "",
            "first_url": "" if is_first else self.search_url(request, text, state, **parameters),
            "csv_url": "" if query.mistakes else self.url(request, "job", "export", **shown, format="csv"),
            "json_url": "" if query.mistakes else self.url(request, "job", "export", **shown, format="json"),
            "save_url": self.url(request, "job", "views", **shown),
        }

    def _tabs(
        self,
        request: HttpRequest,
        query: SearchQuery,
        current: State,
        counts: dict[State, Count],
        all_states: Total,
    ) -> list[dict[str, Any]]:
        text = _text(request, query) if query.mistakes else query.without_states()
        shown = State.ANY if current is State.FAILING else current
        return [
            {
                "name": state_name(state),
                "url": self.search_url(request, text, state),
                "count": all_states.text if state is State.ANY else formatting.count(counts.get(state)),
                "is_current": state is shown,
                "state": state.value,
            }
            for state in TABS
            if state is not State.LIMITED or state is shown or _are_limits_used(counts.get(state))
        ]

    def _job_rows(
        self, request: HttpRequest, rows: list[search.JobRow], payloads: Mapping[int, str | None]
    ) -> list[JobRow]:
        changes = failure_times.entries_about([row for row in rows if row.state is State.FAILED])
        return [self.job_row(request, row, payloads.get(row.id), changes.get(row.id, ())) for row in rows]

    def job_row(
        self, request: HttpRequest, row: search.JobRow, payload: str | None = "", changes: Sequence[LogEntry] = ()
    ) -> JobRow:
        sees_payloads = self.has_view_payload_permission(request)
        return make_row(self, request, row, payload, changes, sees_payloads=sees_payloads)


def _are_limits_used(limited: Count | None) -> bool:
    """Return whether the project has limits, or a worker of another project has jobs that wait for its limits."""
    return registry.tasks.has_limits or (limited is not None and limited.number > 0)


def _text(request: HttpRequest, query: SearchQuery) -> str:
    """Return the text of the search box. A mistake stays there, so that it blocks actions on all jobs that match."""
    return request.GET.get("q", "") if query.mistakes else str(query)
