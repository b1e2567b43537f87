"""The page that gives a failed job another payload, and retries it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_graphile_worker import conf
from django_graphile_worker.admin import audit, databases
from django_graphile_worker.admin.jobs.detail.detail_view import JobDetailAdmin
from django_graphile_worker.admin.jobs.detail.payload_tree import to_json
from django_graphile_worker.admin.jobs.forms import EditForm
from django_graphile_worker.admin.pages import explain_database_errors
from django_graphile_worker.models import Job
from django_graphile_worker.payloads import RawPayload, decode_leniently, encode
from django_graphile_worker.sql.inspection.job_detail import JobDetail
from django_graphile_worker.sql.job_actions import changes
from django_graphile_worker.sql.job_actions.changes import Change


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
        initial = {"payload": _indented(job.payload_text), "revision": job.revision}
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


def _indented(text: str) -> str:
    value = decode_leniently(text)
    return text if isinstance(value, RawPayload) else to_json(value, indent=2)
