"""Adding a job, afresh or like another one."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from django_graphile_worker import api, registry
from django_graphile_worker.admin import audit, databases, formatting, health
from django_graphile_worker.admin.jobs.detail_view import DetailPage
from django_graphile_worker.admin.jobs.forms import AddJobForm
from django_graphile_worker.admin.jobs.payload_tree import written
from django_graphile_worker.admin.jobs.states import flags_of
from django_graphile_worker.admin.pages import page
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.models import Job
from django_graphile_worker.payloads import RawPayload, decode_leniently
from django_graphile_worker.sql.inspection import job_detail, lock_holders, names


class AddingPage(DetailPage):
    """A known task, a payload that is checked at its field, and every option that a job has."""

    @page
    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        self.require(self.has_add_permission(request))
        pattern = self._pattern(request)
        hides_payload = pattern is not None and not self.has_view_payload_permission(request)
        form = AddJobForm(
            request.POST if request.method == "POST" else None,
            tasks=self._tasks(request),
            hides_payload=hides_payload,
            initial=_initial(pattern, hides_payload),
        )
        if request.method == "POST" and form.is_valid():
            response = self._add(request, form, pattern if hides_payload else None)
            if response:
                return response
        context = {
            "title": _("Add job") if pattern is None else _("Add job #%(id)s again") % {"id": pattern.id},
            "form": form,
            "pattern": pattern,
            "hides_payload": hides_payload,
            "add_url": self.url(request, "job", "add", **({"from": pattern.id} if pattern else {})),
            "list_url": self.url(request, "job"),
        }
        return self.render(request, "add.html", context)

    def _pattern(self, request: HttpRequest) -> job_detail.JobDetail | None:
        """The job that the new one is to be like; one must be allowed to see it."""
        object_id = request.GET.get("from")
        if object_id is None:
            return None
        self.require(self.has_view_permission(request))
        job = self.read_job(request, object_id)
        if job is None or len(job.payload_text) >= job_detail.LONGEST_PAYLOAD:
            raise Http404
        return job

    def _tasks(self, request: HttpRequest) -> list[tuple[str, list[tuple[str, str]]]]:
        """Tasks to choose from: this site's own, and what workers and jobs know besides."""
        with databases.reading(databases.alias_of(request)) as (cursor, schema):
            elsewhere = set(names.known_tasks(cursor, schema=schema))
            elsewhere |= {
                task for each in lock_holders.holders(cursor, schema=schema) for task in health.tasks_of(each)
            }
        here = registry.tasks.identifiers()
        groups = [(_("Tasks of this site"), list(here)), (_("Tasks of others"), sorted(elsewhere - set(here)))]
        return [(label, [(name, name) for name in group]) for label, group in groups if group]

    def _add(self, request: HttpRequest, form: AddJobForm, pattern: job_detail.JobDetail | None) -> HttpResponse | None:
        """Add the job; None when it was refused, with the reason in the form."""
        identifier = form.cleaned_data["task"]
        payload = form.cleaned_data.get("payload") if pattern is None else decode_leniently(pattern.payload_text)
        if isinstance(payload, RawPayload):
            raise Http404
        task = registry.tasks.get(identifier) or identifier
        try:
            job = api.add_job(task, payload, **form.options(), using=databases.alias_of(request))
        except (InvalidJobError, InvalidTypeError) as error:
            form.add_error(None, str(error))
            return None
        audit.note(request, Job, str(job.id), f"{identifier} #{job.id}", _("Added in the admin."), audit.ADDITION)
        messages.success(request, _("Added %(task)s #%(id)s.") % {"task": identifier, "id": job.id})
        may_look = self.has_view_permission(request)
        return HttpResponseRedirect(self.url(request, "job", "change", job.id) if may_look else "..")


def _initial(pattern: job_detail.JobDetail | None, hides_payload: bool) -> dict[str, Any]:
    if pattern is None:
        return {"payload": "{}"}
    payload = "" if hides_payload else _indented(pattern.payload_text)
    is_later = not pattern.is_due and formatting.FIRST < pattern.run_at < formatting.LAST
    return {
        "task": pattern.task_identifier,
        "payload": payload,
        "queue_name": pattern.queue_name,
        "run_at": pattern.run_at if is_later else None,
        "priority": pattern.priority,
        "max_attempts": pattern.max_attempts,
        "flags": ", ".join(flags_of(pattern.flags_text)),
    }


def _indented(text: str) -> str:
    value = decode_leniently(text)
    return text if isinstance(value, RawPayload) else written(value, indent=2)
