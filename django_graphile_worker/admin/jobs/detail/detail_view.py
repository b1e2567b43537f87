"""The page of a job."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from django_graphile_worker import conf, registry
from django_graphile_worker.admin import databases, formatting, pause_notice, refreshed_regions
from django_graphile_worker.admin.jobs import failure_times
from django_graphile_worker.admin.jobs.actions.job_actions import offered_actions
from django_graphile_worker.admin.jobs.detail import missing_job
from django_graphile_worker.admin.jobs.detail.add_job_code import add_job_code
from django_graphile_worker.admin.jobs.detail.facts import JobFacts
from django_graphile_worker.admin.jobs.detail.payload_tree import PayloadTree
from django_graphile_worker.admin.jobs.detail.result import read_result, result_context
from django_graphile_worker.admin.jobs.detail.timeline import timeline
from django_graphile_worker.admin.jobs.detail.tracebacks import ParsedError, parse_error
from django_graphile_worker.admin.jobs.job_list.list_view import JobListAdmin
from django_graphile_worker.admin.jobs.states import flag_names, state_name
from django_graphile_worker.admin.pages import explain_database_errors
from django_graphile_worker.admin.search.search_criteria import LARGEST_ID
from django_graphile_worker.models import Job, PastAttempt
from django_graphile_worker.payloads import RawPayload, decode_leniently
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.results.reading import Result
from django_graphile_worker.sql.control import Pause
from django_graphile_worker.sql.inspection import job_detail
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State

MOST_ENTRIES = 20


class JobDetailAdmin(JobListAdmin):
    """The page of a job: details, timeline, error, payload, and buttons for the actions."""

    def read_job(
        self, request: HttpRequest, object_id: str, longest_payload: int | None = job_detail.MAX_PAYLOAD
    ) -> job_detail.JobDetail | None:
        """Read a job; None when it does not exist or the user may not see it."""
        if not (object_id.isascii() and object_id.isdigit() and len(object_id) <= 19 and int(object_id) <= LARGEST_ID):
            raise Http404
        alias = databases.selected_alias(request)
        criteria = Criteria(ids=(int(object_id),), within=self.visible_ids(request, alias))
        with databases.reading(alias) as (cursor, schema):
            if not search.find(cursor, criteria, schema=schema, limit=1).ids:
                return None
            timeout = conf.current().worker_timeout
            return job_detail.job_detail(
                cursor, int(object_id), schema=schema, timeout=timeout, longest=longest_payload
            )

    @explain_database_errors
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        self.require(self.has_view_permission(request))
        job = self.read_job(request, object_id)
        if job is None:
            return self._render_missing(request, object_id)
        sees_payload = self.has_view_payload_permission(request)
        task = job.task_identifier or _("unknown task")
        kept = read_result(databases.selected_alias(request), job.id)
        context: dict[str, Any] = {
            "title": f"{task} #{job.id}",
            "task": task,
            "job": job,
            "state": job.state.value,
            "state_name": state_name(job.state),
            "is_known_task": job.task_identifier in registry.tasks,
            "is_running": job.state is State.RUNNING,
            "is_stopping": job.stop_reason is not None,
            "facts": JobFacts(self, request, job, self._pauses_of(request, job)).all(),
            "timeline": timeline(job, _log_entries(object_id), timezone.now(), _recorded_failure(request, job, kept)),
            "error": _error(job, sees_payload),
            "sees_payload": sees_payload,
            **result_context(kept, sees_payloads=sees_payload),
            **_payload(job, sees_payload),
            **add_job_code(job, sees_payload=sees_payload),
            **self._actions_and_urls(request, job, object_id),
        }
        return self.render(request, "job.html", context)

    def _pauses_of(self, request: HttpRequest, job: job_detail.JobDetail) -> list[Pause]:
        """Return the pauses that the job waits for."""
        if not job.is_available:
            return []
        flags = flag_names(job.flags_text)
        pauses = pause_notice.read_pauses(databases.selected_alias(request))
        return [pause for pause in pauses if pause.holds(job.task_identifier, job.queue_name, flags)]

    def _actions_and_urls(self, request: HttpRequest, job: job_detail.JobDetail, object_id: str) -> dict[str, Any]:
        actions = offered_actions(self, request, job.state)
        edits = job.state is State.FAILED and self.may_edit(request)
        may_download, may_add = self.has_view_payload_permission(request), self.has_add_permission(request)
        return {
            "actions": [] if job.stop_reason is not None else actions,
            "act_url": self.url(request, "job", "act"),
            "back": self.url(request, "job", "change", object_id),
            "list_url": self.url(request, "job"),
            "history_url": self._history_url(request, object_id),
            "payload_url": self.url(request, "job", "payload", object_id) if may_download else "",
            "edit_url": self.url(request, "job", "edit", object_id) if edits else "",
            "add_again_url": self.url(request, "job", "add", **{"from": job.id}) if may_add else "",
        }

    def may_edit(self, request: HttpRequest) -> bool:
        """Return whether the user may change the payload of a failed job.

        A user who may retry jobs, but not add jobs, must not run a task with any payload.
        """
        may_run = self.has_reschedule_permission(request) and self.has_add_permission(request)
        return may_run and self.has_view_payload_permission(request)

    def _history_url(self, request: HttpRequest, object_id: str) -> str:
        page = self.admin_site._registry.get(PastAttempt)
        may_see = page is not None and conf.current().history is not None and page.has_view_permission(request)
        return self.url(request, "pastattempt", "change", object_id) if may_see else ""

    def _render_missing(self, request: HttpRequest, object_id: str) -> HttpResponse:
        alias, job_id = databases.selected_alias(request), int(object_id)
        # If the user may not see every job, the user may not have been allowed to see this job.
        if self.visible_ids(request, alias) is not None:
            context = missing_job.hidden_job_context(job_id)
        else:
            sees_payloads = self.has_view_payload_permission(request)
            entries = _log_entries(object_id)
            context = missing_job.missing_job_context(self, request, job_id, entries, sees_payloads=sees_payloads)
            context["history_url"] = self._history_url(request, object_id)
        context["list_url"] = self.url(request, "job")
        # An open page that refreshes itself shows this response, and would take a 404 for a failure.
        is_found = context.get("is_known") or refreshed_regions.is_refresh(request)
        return self.render(request, "missing_job.html", context, status=200 if is_found else 404)

    @explain_database_errors
    def payload_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Send the whole payload as a file, with headers that keep a browser from opening it as a page."""
        self.require(self.has_view_permission(request) and self.has_view_payload_permission(request))
        job = self.read_job(request, object_id, longest_payload=None)
        if job is None:
            raise Http404
        headers = {
            "Content-Disposition": f'attachment; filename="job-{job.id}.json"',
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "Cache-Control": "no-store",
        }
        return HttpResponse(job.payload_text, content_type="application/json; charset=utf-8", headers=headers)

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        """Show the page of the job, whose timeline is the history: the admin's log links here."""
        return self.change_view(request, object_id)


def _log_entries(object_id: str) -> list[LogEntry]:
    content_type = ContentType.objects.get_for_model(Job, for_concrete_model=False)
    entries = LogEntry.objects.filter(content_type=content_type, object_id=object_id).select_related("user")
    return list(entries.order_by("-action_time")[:MOST_ENTRIES])


def _recorded_failure(request: HttpRequest, job: job_detail.JobDetail, kept: Result | None) -> datetime | None:
    """Return when the last attempt failed, if the result or the history has it and the job itself does not."""
    if not job.last_error or failure_times.is_exact(job):
        return None
    if kept is not None and (ended := [each.ended_at for each in kept.attempts if each.traceback and each.ended_at]):
        return max(ended)
    if conf.current().history is None:
        return None
    with databases.reading(databases.selected_alias(request)) as (cursor, schema):
        return job_detail.last_failure(cursor, job.id, schema=schema)


def _error(job: job_detail.JobDetail, sees_payload: bool) -> ParsedError | None:
    if not job.last_error:
        return None
    return parse_error(job.last_error if sees_payload else redact_text(job.last_error))


def _payload(job: job_detail.JobDetail, sees_payload: bool) -> dict[str, Any]:
    """Return the payload as a tree, or as text if it cannot be decoded; without the permission only its size."""
    size = {"payload_size": formatting.byte_size(job.payload_size)}
    if not sees_payload:
        return size
    is_cut = len(job.payload_text) >= job_detail.MAX_PAYLOAD
    value = RawPayload(job.payload_text) if is_cut else decode_leniently(job.payload_text)
    if isinstance(value, RawPayload):
        note = (
            _("The payload is too large to be shown whole.")
            if is_cut
            else _("Python cannot decode this payload. It is shown as text.")
        )
        return size | {"payload_note": note, "payload_text": value}
    return size | {"payload_tree": PayloadTree().render(value)}
