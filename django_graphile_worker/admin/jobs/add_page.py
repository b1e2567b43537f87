"""The page that adds a job, empty or with the values of another job."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_graphile_worker import api, registry
from django_graphile_worker.admin import audit, databases
from django_graphile_worker.admin.jobs.add_form import AddJobForm
from django_graphile_worker.admin.jobs.job_contents import future_run_at, indented
from django_graphile_worker.admin.jobs.job_page import JobDetailAdmin
from django_graphile_worker.admin.jobs.states import flag_names
from django_graphile_worker.admin.jobs.task_facts import short_description, task_facts
from django_graphile_worker.admin.pages import explain_database_errors
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.job_flags import headers_in, without_headers, without_run_flags
from django_graphile_worker.job_options import OPTIONS
from django_graphile_worker.models import Job
from django_graphile_worker.payloads import RawPayload, decode_leniently
from django_graphile_worker.sql.inspection import job_detail, known_names, lock_holders
from django_graphile_worker.sql.inspection.job_list import State


class JobAddAdmin(JobDetailAdmin):
    """The page that adds a job: a known task, a payload in JSON, and every option of a job."""

    @explain_database_errors
    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        self.require(self.has_add_permission(request))
        source = self._source_job(request)
        hides_payload = source is not None and not self.has_view_payload_permission(request)
        tasks = self._known_tasks(request)
        is_sent = request.method == "POST" and "describe" not in request.POST
        form = AddJobForm(
            request.POST if is_sent else None,
            tasks=tasks,
            hides_payload=hides_payload,
            deletes=source.id if source is not None and self._may_replace(request, source) else None,
            initial=_initial(source, hides_payload) | ({} if hides_payload else _given(request)),
        )
        if is_sent and form.is_valid():
            response = self._add(request, form, source, copies_payload=hides_payload)
            if response:
                return response
        name = str(form["task"].value() or "")
        context = {
            "title": _("Add job") if source is None else _("Duplicate job #%(id)s") % {"id": source.id},
            "form": form,
            "has_task_facts": True,
            "task_facts": task_facts(name) if name in tasks else None,
            "hides_payload": hides_payload,
            "add_url": self.url(request, "job", "add", **({"from": source.id} if source else {})),
            "list_url": self.url(request, "job"),
            "back_url": self.url_or_index(request, "job"),
        }
        return self.render(request, "add.html", context)

    def _source_job(self, request: HttpRequest) -> job_detail.JobDetail | None:
        """Return the job whose values are the initial values of the form, if the user may see it."""
        object_id = request.GET.get("from")
        if object_id is None:
            return None
        self.require(self.has_view_permission(request))
        job = self.read_job(request, object_id)
        if job is None or len(job.payload_text) >= job_detail.MAX_PAYLOAD:
            raise Http404
        return job

    def _known_tasks(self, request: HttpRequest) -> dict[str, str]:
        """Return the tasks of this site, then the other tasks that workers or jobs have, each with a description."""
        here = registry.tasks.identifiers()
        alias = databases.selected_alias(request)
        if self.visible_ids(request, alias) is not None:
            # The user may see only some jobs: which tasks there are elsewhere is not said.
            return {name: short_description(name) for name in here}
        with databases.reading(alias) as (cursor, schema):
            elsewhere = set(known_names.known_tasks(cursor, schema=schema))
            elsewhere |= {task for each in lock_holders.holders(cursor, schema=schema) for task in each.tasks}
        return {name: short_description(name) for name in here} | dict.fromkeys(sorted(elsewhere - set(here)), "")

    def _may_replace(self, request: HttpRequest, source: job_detail.JobDetail) -> bool:
        """Return whether the job can be deleted when its duplicate is added."""
        return source.state is State.FAILED and self.has_complete_permission(request)

    def _add(
        self, request: HttpRequest, form: AddJobForm, source: job_detail.JobDetail | None, *, copies_payload: bool
    ) -> HttpResponse | None:
        """Add the job, with the payload of `source` if asked. Return None if it is rejected; the form has the error."""
        identifier = form.cleaned_data["task"]
        payload, options = form.cleaned_data.get("payload"), form.options()
        if source is not None and copies_payload:
            payload = decode_leniently(source.payload_text)
            options["headers"] = headers_in(flag_names(source.flags_text)) or None
        if isinstance(payload, RawPayload):
            raise Http404
        task = registry.tasks.get(identifier) or identifier
        alias = databases.selected_alias(request)
        replaced = source.id if source is not None and form.cleaned_data.get("delete_original") else None
        try:
            with transaction.atomic(using=alias):
                job = api.add_job(task, payload, **options, using=alias)
                deleted = api.complete_jobs([replaced], using=alias) if replaced is not None else []
        except (InvalidJobError, InvalidTypeError) as error:
            form.add_error(None, str(error))
            return None
        name = f"{identifier} #{job.id}"
        entry = audit.Message(gettext_noop("Added in the admin."))
        audit.log(request, Job, str(job.id), name, entry, audit.ADDITION)
        url = self.url(request, "job", "change", job.id)
        link = format_html('<a href="{}"><bdi>{}</bdi></a>', url, name) if url else name
        messages.success(request, format_html(_("Added {}."), link))
        if replaced is not None:
            _report_replaced(request, job.id, replaced, is_deleted=bool(deleted))
        return HttpResponseRedirect(url or self.url_or_index(request, "job"))


def _given(request: HttpRequest) -> dict[str, Any]:
    """Return the fields that a link or the button “Describe task” has sent; they are not validated yet."""
    if request.method == "POST":
        return {name: request.POST[name] for name in (*AddJobForm.base_fields, *OPTIONS) if name in request.POST}
    return {"task": request.GET["task"].replace("\x00", "")} if "task" in request.GET else {}


def _report_replaced(request: HttpRequest, new_id: int, job_id: int, *, is_deleted: bool) -> None:
    ids = {"id": str(job_id), "new_id": str(new_id)}
    if is_deleted:
        entry = audit.Message(gettext_noop("Replaced by #%(new_id)s."), ids)
        audit.log(request, Job, str(job_id), f"#{job_id}", entry, audit.DELETION)
        messages.success(request, _("Deleted #%(id)s.") % ids)
    else:
        messages.warning(request, _("#%(id)s was not deleted: a worker is running it, or it has ended.") % ids)


def _initial(source: job_detail.JobDetail | None, hides_payload: bool) -> dict[str, Any]:
    if source is None:
        return {"payload": "{}"}
    flags = flag_names(source.flags_text)
    return {
        "task": source.task_identifier,
        "payload": "" if hides_payload else indented(source.payload_text),
        "queue_name": source.queue_name,
        "run_at": future_run_at(source),
        "priority": source.priority,
        "max_attempts": source.max_attempts,
        "flags": ", ".join(without_headers(without_run_flags(flags))),
        "headers": headers_in(flags) or None,
    }
