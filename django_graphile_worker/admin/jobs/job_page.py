"""The page of a job, also of one that has ended, and the page on which a failed job gets another payload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import display_for_field, display_for_value, label_for_field, lookup_field
from django.contrib.contenttypes.models import ContentType
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_graphile_worker import conf, registry
from django_graphile_worker.admin import audit, databases, formatting, pause_notice, refreshed_regions
from django_graphile_worker.admin.jobs.action_pages import JobActionsAdmin
from django_graphile_worker.admin.jobs.forms import EditForm
from django_graphile_worker.admin.jobs.job_contents import (
    ParsedError,
    PayloadTree,
    add_job_code,
    indented,
    parse_error,
    read_result,
    result_context,
)
from django_graphile_worker.admin.jobs.job_facts import Fact, JobFacts, ending_of, timeline, why_waiting
from django_graphile_worker.admin.jobs.states import flag_names, state_name
from django_graphile_worker.admin.pages import PageAdmin, explain_database_errors
from django_graphile_worker.admin.search_terms import SearchTerm
from django_graphile_worker.models import Job, PastAttempt
from django_graphile_worker.payloads import RawPayload, decode_leniently, encode
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.results.reading import Result
from django_graphile_worker.sql.control import Pause
from django_graphile_worker.sql.inspection import job_detail
from django_graphile_worker.sql.inspection.job_detail import JobDetail
from django_graphile_worker.sql.inspection.job_list import State
from django_graphile_worker.sql.inspection.past_attempts import HistoryRow
from django_graphile_worker.sql.job_actions import changes
from django_graphile_worker.sql.job_actions.changes import Change


class JobDetailAdmin(JobActionsAdmin):
    """The page of a job: details, timeline, error, payload, and buttons for the actions."""

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Job | None:
        """Return a job that the user may see; None if there is none."""
        if not (object_id.isascii() and object_id.isdigit() and len(object_id) <= 19 and int(object_id) < 2**63):
            raise Http404
        with databases.reading(databases.selected_alias(request)):
            # Not joined: a job may name a task that is gone.
            jobs = self.get_queryset(request).select_related(None)
            found: Job | None = jobs.filter(pk=object_id).first()
        self.require(found is None or self.has_view_permission(request, found))
        return found

    def read_job(
        self, request: HttpRequest, object_id: str, longest_payload: int | None = job_detail.MAX_PAYLOAD
    ) -> job_detail.JobDetail | None:
        """Read all about a job; None if it does not exist or the user may not see it."""
        if self.get_object(request, object_id) is None:
            return None
        with databases.reading(databases.selected_alias(request)) as (cursor, schema):
            timeout = conf.current().worker_timeout
            return job_detail.job_detail(
                cursor, int(object_id), schema=schema, timeout=timeout, longest=longest_payload
            )

    @explain_database_errors
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        self.require(self.has_view_permission(request))
        row, job = self.get_object(request, object_id), self.read_job(request, object_id)
        if row is None or job is None:
            return self._render_missing(request, object_id)
        sees_payload = self.has_view_payload_permission(request)
        task = job.task_identifier or _("unknown task")
        alias = databases.selected_alias(request)
        kept, all_pauses = read_result(alias, job.id), pause_notice.read_pauses(alias)
        pauses = _pauses_of(job, all_pauses)
        context: dict[str, Any] = {
            "title": f"{task} #{job.id}",
            "task": task,
            "job": job,
            "state": job.state.value,
            "state_name": state_name(job.state),
            "is_known_task": job.task_identifier in registry.tasks,
            "is_running": job.state is State.RUNNING,
            "silence": _silence(job),
            "workers_url": self.url(request, "worker"),
            "is_stopping": job.stop_reason is not None,
            "facts": [*JobFacts(self, request, job, pauses).all(), *self._own_facts(request, row)],
            "waiting": why_waiting(self, request, job, all_pauses, pauses),
            **self.pauses_context(request, all_pauses),
            "timeline": timeline(job, _log_entries(object_id), timezone.now(), _recorded_failure(request, job, kept)),
            "error": _error(job, sees_payload),
            "sees_payload": sees_payload,
            **result_context(kept, sees_payloads=sees_payload),
            **_payload(job, sees_payload),
            **add_job_code(job, sees_payload=sees_payload),
            **self._actions_and_urls(request, job, object_id),
            **(extra_context or {}),
        }
        return self.render(request, self.change_form_template or "job.html", context)

    def _own_facts(self, request: HttpRequest, row: Job) -> Iterator[Fact]:
        """Yield what the project has added with ``readonly_fields``."""
        empty = self.get_empty_value_display()
        for name in self.get_readonly_fields(request, row):
            # The page shows these two, to those who may see them.
            if name not in ("payload", "last_error"):
                field, _attribute, value = lookup_field(name, row, self)
                shown = display_for_value(value, empty) if field is None else display_for_field(value, field, empty)
                label: Any = label_for_field(name, Job, self)
                yield Fact(capfirst(label), shown)

    def _actions_and_urls(self, request: HttpRequest, job: job_detail.JobDetail, object_id: str) -> dict[str, Any]:
        actions = self.actions_of_job(request, job.state)
        edits = job.state is State.FAILED and self.may_edit(request)
        may_download, may_add = self.has_view_payload_permission(request), self.has_add_permission(request)
        return {
            "actions": [] if job.stop_reason is not None else actions,
            "own_actions": self.own_actions(request),
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
            context = hidden_job_context(job_id)
        else:
            sees_payloads = self.has_view_payload_permission(request)
            entries = _log_entries(object_id)
            context = missing_job_context(self, request, job_id, entries, sees_payloads=sees_payloads)
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


def _silence(job: job_detail.JobDetail) -> str:
    """Return for how long the worker that holds the job has been silent; "" if it is alive, or sends no heartbeat."""
    seconds = job.holder_silent_seconds
    is_lost = job.state is State.RUNNING and seconds is not None and seconds > conf.current().worker_timeout
    return formatting.duration(seconds) if is_lost else ""


def _pauses_of(job: job_detail.JobDetail, pauses: Sequence[Pause]) -> list[Pause]:
    """Return the pauses that the job waits for."""
    flags = flag_names(job.flags_text) if job.is_available else ()
    return [each for each in pauses if job.is_available and each.holds(job.task_identifier, job.queue_name, flags)]


def _log_entries(object_id: str) -> list[LogEntry]:
    content_type = ContentType.objects.get_for_model(Job, for_concrete_model=False)
    entries = LogEntry.objects.filter(content_type=content_type, object_id=object_id).select_related("user")
    return list(entries.order_by("-action_time")[:MAX_ENTRIES])


def _recorded_failure(request: HttpRequest, job: job_detail.JobDetail, kept: Result | None) -> datetime | None:
    """Return when the last attempt failed, if the result or the history has it."""
    if not job.last_error:
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


class JobEditAdmin(JobDetailAdmin):
    """The page with the payload of a failed job. Saving it retries the job: the same job, with its last error."""

    @explain_database_errors
    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        self.require(self.has_view_permission(request) and self.may_edit(request))
        job = self.read_job(request, object_id, longest_payload=None)
        page_url = self.url(request, "job", "change", object_id)
        if job is None:
            return HttpResponseRedirect(page_url)
        if job.locked_at is not None or not job.attempts:
            message = _("Only jobs that have failed can be edited. This job has not failed, or is running.")
            messages.warning(request, message)
            return HttpResponseRedirect(page_url)
        initial = {"payload": indented(job.payload_text), "revision": job.revision}
        form = EditForm(request.POST if request.method == "POST" else None, initial=initial)
        if request.method == "POST" and form.is_valid():
            if self._retry(request, job, form.cleaned_data):
                return HttpResponseRedirect(page_url)
            form = EditForm(initial=initial)
        name = f"{job.task_identifier or _('unknown task')} #{job.id}"
        context = {
            "title": _("Edit and retry %(job)s") % {"job": name},
            "job_name": name,
            "job_url": page_url,
            "list_url": self.url(request, "job"),
            "form": form,
        }
        return self.render(request, "edit.html", context)

    def _retry(self, request: HttpRequest, job: JobDetail, data: dict[str, Any]) -> bool:
        """Retry the job with the payload of the form; return whether it is still the job that the form showed."""
        alias, settings = databases.selected_alias(request), conf.current()
        payload = encode(data["payload"], max_size=settings.max_payload_size)
        change = Change(action=changes.RETRY, payload=payload, revision=data["revision"])
        with databases.writing(alias) as (cursor, schema):
            changed = changes.change_jobs(cursor, [job.id], change, schema=schema, notify=settings.notify)
            if changed:
                entry = audit.Message(
                    gettext_noop("Edited the payload and retried."), fields=(gettext_noop("Payload"),)
                )
                audit.log(request, Job, str(job.id), f"{job.task_identifier} #{job.id}", entry)
        if changed:
            messages.success(request, _("The job has its new payload, and will be retried now."))
        else:
            messages.error(request, _("Nothing was saved: the job was changed meanwhile. Check its payload again."))
        return bool(changed)


def missing_job_context(
    page: PageAdmin, request: HttpRequest, job_id: int, entries: list[LogEntry], *, sees_payloads: bool
) -> dict[str, Any]:
    """Return the context of the page. ``is_known`` is whether anything tells of the job."""
    alias = databases.selected_alias(request)
    kept = read_result(alias, job_id)
    with databases.reading(alias) as (cursor, schema):
        last = job_detail.last_attempt(cursor, job_id, schema=schema)
        newest = job_detail.last_job_id(cursor, schema=schema)
    ending = ending_of(kept, last, entries, sees_payloads=sees_payloads)
    title, badge, explanation = _texts(job_id, newest)
    task = kept.task_identifier if kept else last.task_identifier if last else None
    return {
        "title": title if task is None else f"{task} #{job_id}",
        "ending": ending,
        "badge": badge,
        "explanation": explanation,
        "entries": [_shown_entry(entry) for entry in entries],
        "facts": _facts(page, request, kept, last),
        "is_known": ending is not None,
        **result_context(kept, sees_payloads=sees_payloads),
    }


def _shown_entry(entry: LogEntry) -> dict[str, Any]:
    time = formatting.exact_time(entry.action_time)
    return {"time": time, "message": audit.message_of(entry), "user": entry.user}


def hidden_job_context(job_id: int) -> dict[str, Any]:
    """Return the context for a user who may see only some jobs: it does not tell whether the job exists."""
    title, explanation = _("There is no job #%(id)s"), _("It has ended, or you may not see it.")
    return {"title": title % {"id": job_id}, "badge": _("Not found"), "explanation": explanation}


def _texts(job_id: int, newest: int | None) -> tuple[str, str, str]:
    """Return the title, the badge and the explanation for a job of which nothing is known."""
    if newest is not None and job_id > newest:
        title = _("There is no job #%(id)s") % {"id": job_id}
        explanation = _("The job that was added last is #%(id)s.") % {"id": newest}
        return title, _("Not found"), explanation if newest else _("No job has been added yet.")
    title = _("Job #%(id)s has ended") % {"id": job_id}
    if conf.current().history is not None:
        return title, _("Ended"), _("It ended or was deleted, and the history has no attempt of it.")
    explanation = _(
        "It ended or was deleted. Jobs that succeed are deleted: to see their outcome here, set "
        "GRAPHILE_WORKER[“HISTORY”], or keep the results of the task with @task(keep_result=…)."
    )
    return title, _("Ended"), explanation


def _facts(page: PageAdmin, request: HttpRequest, kept: Result | None, last: HistoryRow | None) -> list[Fact]:
    """Return what is known about a job that has ended, with the facts of its last attempt."""
    if kept is None and last is None:
        return []
    task = kept.task_identifier if kept else last.task_identifier if last else ""
    queue = kept.queue_name if kept else last.queue_name if last else None
    facts = [Fact(_("Task"), task, page.url(request, "job", q=str(SearchTerm("task", task))))]
    if queue is not None:
        facts.append(Fact(_("Queue"), queue, page.url(request, "job", q=str(SearchTerm("queue", queue)))))
    if last is not None:
        facts.append(Fact(_("Attempts"), last.attempt))
        if last.worker_id:
            facts.append(Fact(_("Worker"), last.worker_id))
    times = {
        _("Created"): kept.added_at if kept else last.added_at if last else None,
        _("Started"): kept.last_started_at if kept else last.started_at if last else None,
        _("Ended"): kept.finished_at if kept else last.ended_at if last else None,
    }
    return facts + [Fact(name, formatting.exact_time(time)) for name, time in times.items() if time is not None]


MAX_ENTRIES = 20
