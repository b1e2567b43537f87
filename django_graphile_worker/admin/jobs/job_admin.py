"""The admin of jobs: the list with its columns, filters, search and actions. Start reading here.

It is a ``ModelAdmin`` that a project extends as the documentation of Django says: ``list_display``, ``list_filter``,
``get_search_results``, ``actions``, ``get_queryset`` and ``change_list_template``.
"""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import quote

from django.contrib import admin
from django.db import connections, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import URLPattern, URLResolver, path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_graphile_worker.admin import databases, error_summary, formatting
from django_graphile_worker.admin.jobs.add_page import JobAddAdmin
from django_graphile_worker.admin.jobs.change_list import JobChangeList, QueueFilter, StateFilter, TaskFilter
from django_graphile_worker.admin.jobs.exporting import JobExportAdmin
from django_graphile_worker.admin.jobs.job_page import JobEditAdmin
from django_graphile_worker.admin.jobs.payload_preview import payload_preview
from django_graphile_worker.admin.jobs.search import Names, parse_search
from django_graphile_worker.admin.jobs.states import flag_names, state_description, state_name
from django_graphile_worker.admin.list_page import ListPageAdmin
from django_graphile_worker.admin.pages import TEMPLATES, explain_database_errors
from django_graphile_worker.admin.search_terms import SearchTerm
from django_graphile_worker.admin.shown_progress import shown_progress
from django_graphile_worker.job_flags import names_in
from django_graphile_worker.models import Job
from django_graphile_worker.registry import DEFAULT_LABEL, split_identifier
from django_graphile_worker.sql.inspection.job_list import JobRow, State

# The order of the list of each state, for a search or a filter that is not read along an index.
ORDERS = {
    State.READY: ("priority", "run_at", "pk"),
    State.LIMITED: ("pk",),
    State.SCHEDULED: ("run_at", "pk"),
    State.WAITING: ("run_at", "pk"),
    State.RETRYING: ("run_at", "pk"),
    State.RUNNING: ("locked_at", "pk"),
    State.FAILED: ("-updated_at", "-pk"),
    State.FAILING: ("-updated_at", "-pk"),
}


# The page of a job has no form of Django: rows of jobs are read-only.
OF_FORMS = frozenset(
    {
        "autocomplete_fields", "exclude", "fields", "fieldsets", "filter_horizontal", "filter_vertical", "form",
        "formfield_overrides", "inlines", "prepopulated_fields", "radio_fields", "raw_id_fields", "save_as",
        "save_on_top", "view_on_site",
    }
)  # fmt: skip


class JobAdmin(ListPageAdmin, JobEditAdmin, JobAddAdmin, JobExportAdmin):
    """The admin of jobs. A subclass whose ``get_queryset`` returns fewer jobs restricts every page and every action."""

    change_list_template = f"{TEMPLATES}/jobs.html"
    list_display: tuple[Any, ...] = (
        "number",
        "task_name",
        "payload_text",
        "state",
        "worker",
        "queue",
        "priority_text",
        "tries",
        "time",
    )
    list_display_links = ("number",)
    column_classes: ClassVar[dict[str, str]] = {
        "number": "gw-card-title",
        "task_name": "gw-card-title gw-name gw-wide-name",
        "payload_text": "gw-payload-cell",
        "worker": "gw-name gw-worker-cell",
        "queue": "gw-name",
        "priority_text": "gw-num",
        "tries": "gw-num",
    }
    list_filter: ClassVar[tuple[Any, ...]] = (StateFilter, TaskFilter, QueueFilter)
    # get_search_results() decides what the search means. A word is also searched in the fields that a project adds.
    search_fields: ClassVar[tuple[str, ...]] = ("pk",)
    # By another column, a page would have to read all jobs.
    sortable_by = ("number",)
    actions: Any = ("run_now", "run_next", "retry", "reschedule", "fail", "cancel", "delete")
    without_effect = frozenset({*ListPageAdmin.without_effect, *OF_FORMS})

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        def view(name: str, url: str, *, has_steps: bool = False) -> URLPattern:
            page: Any = self.admin_site.admin_view(getattr(self, f"{name}_view"))
            if has_steps:
                # An action on many jobs commits after each step, also on a site with ATOMIC_REQUESTS.
                for alias in connections:
                    page = transaction.non_atomic_requests(using=alias)(page)
            found: URLPattern = path(url, page, name=f"graphile_worker_job_{name}")
            return found

        return [
            view("act", "act/", has_steps=True),
            view("action", "action/<uuid:action_id>/", has_steps=True),
            view("export", "export/"),
            view("edit", "<path:object_id>/edit/"),
            view("payload", "<path:object_id>/payload/"),
            *super().get_urls(),
        ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        return super().get_queryset(request).select_related("task", "job_queue").defer("payload", "last_error")

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[JobChangeList]:
        return JobChangeList

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        if self.ordering:
            return tuple(self.ordering)  # type: ignore[arg-type]
        state = request.GET.get("state", "")
        return ORDERS.get(State(state), ("-pk",)) if state in State._value2member_map_ else ("-pk",)

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Leave out the columns that the user may not see, and those that are empty in this state."""
        hidden = set() if request.GET.get("state") == State.RUNNING else {"worker"}
        if not self.has_view_payload_permission(request):
            hidden |= {"payload", "payload_text", "last_error"}
        names = [name for name in super().get_list_display(request) if name not in hidden]
        # The column of the model would show the values of secret keys.
        return ["payload_text" if name == "payload" else name for name in names]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search by the terms of the text. What is read along an index is left to JobChangeList."""
        request.job_search = search = parse_search(search_term, self.names(request))  # type: ignore[attr-defined]
        return (queryset.filter(search.condition) if search.condition else queryset), False

    def names(self, request: HttpRequest) -> Names:
        """Return the names that searches know; they are read at most once in a request."""
        names: Names | None = getattr(request, "job_names", None)
        if names is None:
            alias = databases.selected_alias(request)
            names = Names(
                alias,
                sees_payloads=self.has_view_payload_permission(request),
                is_restricted=self.visible_ids(request, alias) is not None,
                search_fields=[name for name in self.get_search_fields(request) if name not in JobAdmin.search_fields],
            )
            request.job_names = names  # type: ignore[attr-defined]
        return names

    def known_tasks(self, request: HttpRequest) -> list[str]:
        """Return the tasks that the user may know of."""
        names = self.names(request)
        return [] if names.is_restricted else names.tasks

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        context = {} if request.method == "POST" else self._list_context(request) | (extra_context or {})
        response: Any = self.show_list(request, context)
        if hasattr(response, "context_data") and "cl" in response.context_data:
            response.context_data["subtitle"] = state_description(response.context_data["cl"].criteria.state)
        found: HttpResponse = response
        return found

    def _list_context(self, request: HttpRequest) -> dict[str, Any]:
        query = request.GET.urlencode()
        export_url = self.url(request, "job", "export")
        separator = "&" if "?" in export_url else "?"
        return {
            "add_url": self.url(request, "job", "add") if self.has_add_permission(request) else "",
            "export_urls": [
                (name.upper(), f"{export_url}{separator}{query + '&' if query else ''}format={name}")
                for name in ("csv", "json")
            ],
            "examples": examples(),
            "known_tasks": self.known_tasks(request),
        }

    # The columns.

    @admin.display(description=gettext_lazy("Job"), ordering="pk")
    def number(self, job: Any) -> str:
        return f"#{job.pk}"

    @admin.display(description=gettext_lazy("Task"))
    def task_name(self, job: Any) -> SafeString:
        row: JobRow = job.row
        task, label = split_identifier(row.task_identifier or "")
        context = {
            "task": task or _("unknown task"),
            "task_url": job.shown_to.search_url(SearchTerm("task", row.task_identifier or "?")),
            "label": "" if label == DEFAULT_LABEL else label,
            "label_url": job.shown_to.search_url(SearchTerm("label", label)),
            "flags": names_in(flag_names(row.flags_text)),
            "key": row.key,
            "error": error_summary.summarize(row.error, sees_payloads=job.shown_to.sees_payloads),
        }
        return render_to_string(f"{TEMPLATES}/_task_cell.html", context)

    @admin.display(description=gettext_lazy("Payload"))
    def payload_text(self, job: Any) -> SafeString:
        if job.payload_beginning is None:
            return format_html('<span class="gw-quiet">{}</span>', _("too large for a list"))
        return format_html("<code>{}</code>", payload_preview(job.payload_beginning))

    @admin.display(description=gettext_lazy("State"))
    def state(self, job: Any) -> SafeString:
        row: JobRow = job.row
        context = {
            "state": row.state.value,
            "name": state_name(row.state),
            "progress": shown_progress(
                row.progress, sees_payloads=job.shown_to.sees_payloads, started_at=row.locked_at
            ),
        }
        return render_to_string(f"{TEMPLATES}/_state_cell.html", context)

    @admin.display(description=gettext_lazy("Worker"), empty_value=formatting.EMPTY_VALUE)
    def worker(self, job: Any) -> SafeString | None:
        if job.row.locked_by is None:
            return None
        if not job.shown_to.workers_url:
            return format_html("<bdi>{}</bdi>", job.row.locked_by)
        url = f"{job.shown_to.workers_url}#gw-worker-{quote(job.row.locked_by)}"
        return format_html('<a href="{}"><bdi>{}</bdi></a>', url, job.row.locked_by)

    @admin.display(description=gettext_lazy("Queue"), empty_value=formatting.EMPTY_VALUE)
    def queue(self, job: Any) -> SafeString | None:
        name = job.row.queue_name
        if name is None:
            return None
        return format_html('<a href="{}"><bdi>{}</bdi></a>', job.shown_to.search_url(SearchTerm("queue", name)), name)

    @admin.display(description=gettext_lazy("Priority"))
    def priority_text(self, job: Any) -> str:
        return str(job.priority)

    @admin.display(description=gettext_lazy("Attempts"))
    def tries(self, job: Any) -> str:
        return f"{job.row.attempts_made}/{job.row.max_attempts}"

    @admin.display(description=gettext_lazy("Time"))
    def time(self, job: Any) -> SafeString | str:
        return formatting.relative_time(job.row.moment)


def examples() -> list[tuple[str, str]]:
    """Return searches with what each finds."""
    return [
        ("#95", _("the job with this id, in any state; also id:17,18 and id:<95")),
        ("charge", _("tasks, queues and keys that contain this word, and jobs with this flag")),
        ("task:send_receipt", _("jobs of the task, or of all tasks whose names contain the text")),
        ("queue:eu", _("jobs of the queue, or of all queues whose names contain the text")),
        ("label:emails", _("jobs of Django tasks with this label")),
        ("flag:slow", _("jobs with this flag")),
        ("key:order-7", _("the job with this key")),
        ("state:ready,running", _("jobs in one of these states")),
        ("attempts:>3", _("also 2..5, <2, 3")),
        ("priority:0..10", _("also >5, <0, 3")),
        ("exception:KeyError", _("jobs whose last error has this name, or ends with it after a dot")),
        ('error:"timed out"', _("text in the last error")),
        ("payload:ada@example.org", _("text anywhere in the payload")),
        ("payload.user.id:5", _("a value in the payload")),
        ("worker:web-1", _("jobs that a worker runs: its id, or its host")),
        ("limit:account:42", _("jobs that wait for the key of a limit, or have a place of it")),
        ("created:2h", _("added in the last two hours; also 2026-01-01..2026-01-31")),
        ("due:2h", _("due within two hours")),
        ("-queue:eu", _("not in this queue")),
    ]
