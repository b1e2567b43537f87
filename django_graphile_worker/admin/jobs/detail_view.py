"""One job."""

from __future__ import annotations

import pprint
from datetime import datetime
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from django_graphile_worker import conf, registry
from django_graphile_worker.admin import databases, error_summary, formatting
from django_graphile_worker.admin.jobs import tracebacks
from django_graphile_worker.admin.jobs.actions import ACTIONS
from django_graphile_worker.admin.jobs.list_view import ListingPage
from django_graphile_worker.admin.jobs.payload_tree import Tree, written
from django_graphile_worker.admin.jobs.states import flags_of, name_of
from django_graphile_worker.admin.jobs.timeline import timeline
from django_graphile_worker.admin.pages import page
from django_graphile_worker.admin.search import LARGEST_ID, SearchTerm
from django_graphile_worker.models import Job
from django_graphile_worker.payloads import RawPayload, decode_leniently
from django_graphile_worker.redaction import HIDDEN, redact, redact_text
from django_graphile_worker.sql.inspection import job_detail, search
from django_graphile_worker.sql.inspection.add_job_call import add_job_call
from django_graphile_worker.sql.inspection.criteria import Criteria, State

MOST_ENTRIES = 20


class DetailPage(ListingPage):
    """Everything about a job, and what can be done with it."""

    def read_job(
        self, request: HttpRequest, object_id: str, longest_payload: int | None = job_detail.LONGEST_PAYLOAD
    ) -> job_detail.JobDetail | None:
        """The job, if there is one and the user may see it."""
        if not (object_id.isascii() and object_id.isdigit() and len(object_id) <= 19 and int(object_id) <= LARGEST_ID):
            raise Http404
        alias = databases.alias_of(request)
        criteria = Criteria(ids=(int(object_id),), within=self.within(request, alias))
        with databases.reading(alias) as (cursor, schema):
            if not search.find(cursor, criteria, schema=schema, limit=1).ids:
                return None
            timeout = conf.current().worker_timeout
            return job_detail.job_detail(
                cursor, int(object_id), schema=schema, timeout=timeout, longest=longest_payload
            )

    @page
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        self.require(self.has_view_permission(request))
        job = self.read_job(request, object_id)
        if job is None:
            return self._gone(request, object_id)
        sees = self.has_view_payload_permission(request)
        now = timezone.now()
        state = job.state
        task = job.task_identifier or _("unknown task")
        context: dict[str, Any] = {
            "title": f"{task} #{job.id}",
            "task": task,
            "job": job,
            "state": state.value,
            "state_name": name_of(state),
            "is_known_task": job.task_identifier in registry.tasks,
            "facts": self._facts(request, job),
            "timeline": timeline(job, self._entries(object_id), now),
            "trace": self._trace(job, sees),
            "sees_payload": sees,
            "payload_url": self.url(request, "job", "payload", object_id) if sees else "",
            **self._payload(job, sees),
            **self._snippets(job, sees),
            "actions": [each for each in ACTIONS.values() if each.is_allowed(self, request)]
            if job.locked_at is None
            else [],
            "is_running": state is State.RUNNING,
            "act_url": self.url(request, "job", "act"),
            "back": self.url(request, "job", "change", object_id),
            "list_url": self.url(request, "job"),
            "again_url": self.url(request, "job", "add", **{"from": job.id})
            if self.has_add_permission(request)
            else "",
        }
        return self.render(request, "job.html", context)

    def _gone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        context = {
            "title": _("There is no job %(id)s") % {"id": object_id},
            "explanation": _("It has been completed, or removed: jobs are deleted when they succeed."),
            # Who may not see every job might not have been allowed to see this one.
            "entries": self._entries(object_id) if self.within(request, databases.alias_of(request)) is None else [],
        }
        # The script that renews an open page asks for what there is to see, and 404 would be an error to it.
        is_renewal = request.headers.get("X-Requested-With") == "XMLHttpRequest"
        return self.render(request, "gone.html", context, status=200 if is_renewal else 404)

    @page
    def payload_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The whole payload as a file, and as nothing else: no browser is to take it for a page."""
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

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """The timeline is the history; the admin's log links here."""
        return self.change_view(request, object_id)

    def _entries(self, object_id: str) -> list[LogEntry]:
        kind = ContentType.objects.get_for_model(Job, for_concrete_model=False)
        entries = LogEntry.objects.filter(content_type=kind, object_id=object_id).select_related("user")
        return list(entries.order_by("-action_time")[:MOST_ENTRIES])

    def _facts(self, request: HttpRequest, job: job_detail.JobDetail) -> list[tuple[str, Any, str]]:
        """Name, value, and where the value leads."""
        task_url = self.url(request, "job", q=str(SearchTerm("task", job.task_identifier or "?")))
        facts: list[tuple[str, Any, str]] = [
            (_("Task"), job.task_identifier or _("unknown task"), task_url),
            (_("Priority"), job.priority, ""),
            (_("Attempts"), self._attempts(job), ""),
            (_("Run at"), formatting.exact(job.run_at), ""),
            (_("Created"), formatting.exact(job.created_at), ""),
            (_("Updated"), formatting.exact(job.updated_at), ""),
        ]
        if job.key is not None:
            facts.append((_("Job key"), job.key, ""))
        if flags := flags_of(job.flags_text):
            facts.append((_("Flags"), ", ".join(flags), ""))
        if job.revision:
            facts.append((_("Revision"), job.revision, ""))
        if job.recoveries:
            facts.append((_("Workers that died with it"), job.recoveries, ""))
        facts += self._holder(request, job)
        if job.is_available and not job.live_workers:
            told = _("no live worker has this task; those of Node.js do not tell")
            facts.append((_("Workers"), told, self.url(request, "worker")))
        if job.queue_name is not None:
            queue_url = self.url(request, "job", q=str(SearchTerm("queue", job.queue_name)))
            facts += [(_("Queue"), job.queue_name, queue_url), *self._queue(request, job)]
        return facts

    def _attempts(self, job: job_detail.JobDetail) -> str:
        # A job that its task gave up has as many attempts as it may have, however often it ran; our worker notes it.
        if job.attempts_made < job.attempts:
            return _("%(number)s of %(most)s, then given up") % {
                "number": job.attempts_made,
                "most": job.max_attempts,
            }
        if job.state is State.FAILED and error_summary.was_given_up(job.last_error):
            return _("none left of %(most)s") % {"most": job.max_attempts}
        return _("%(number)s of %(most)s") % {"number": job.attempts, "most": job.max_attempts}

    def _holder(self, request: HttpRequest, job: job_detail.JobDetail) -> list[tuple[str, Any, str]]:
        if job.locked_by is None:
            return []
        beat = job.holder_silent_seconds
        known = (
            _("not registered here")
            if beat is None
            else _("last heard of %(duration)s ago") % {"duration": formatting.duration(beat)}
        )
        return [(_("Held by"), f"{job.locked_by} ({known})", self.url(request, "worker"))]

    def _queue(self, request: HttpRequest, job: job_detail.JobDetail) -> list[tuple[str, Any, str]]:
        facts: list[tuple[str, Any, str]] = []
        if job.locked_at is None and job.queue_locked_by is not None:
            told = _("%(worker)s has the queue since %(time)s") % {
                "worker": job.queue_locked_by,
                "time": formatting.exact(job.queue_locked_at),
            }
            if job.queue_running_id is not None:
                told = f"{told}: {job.queue_running_task} #{job.queue_running_id}"
            url = self.url(request, "job", "change", job.queue_running_id) if job.queue_running_id else ""
            facts.append((_("Waits for"), told, url))
        if job.ahead:
            facts.append((_("Ahead of it in the queue"), formatting.capped(job.ahead, job_detail.MOST_AHEAD), ""))
        return facts

    def _trace(self, job: job_detail.JobDetail, sees: bool) -> tracebacks.Trace | None:
        if not job.last_error:
            return None
        return tracebacks.read(job.last_error if sees else redact_text(job.last_error))

    def _payload(self, job: job_detail.JobDetail, sees: bool) -> dict[str, Any]:
        """The payload as a tree if it can be read, as text if it cannot, hidden in part or whole if it must be."""
        told = {"payload_size": formatting.size(job.payload_size)}
        is_cut = len(job.payload_text) >= job_detail.LONGEST_PAYLOAD
        value = RawPayload(job.payload_text) if is_cut else decode_leniently(job.payload_text)
        if isinstance(value, RawPayload):
            why = (
                _("Too large to be shown whole.")
                if is_cut
                else _("Python cannot read this payload; it is shown as text.")
            )
            return told | {"payload_note": why, "payload_text": value if sees else HIDDEN}
        return told | {"payload_tree": Tree().draw(value if sees else redact(value))}

    def _snippets(self, job: job_detail.JobDetail, sees: bool) -> dict[str, str]:
        """The calls that would add the job again; what is hidden stays so."""
        is_whole = len(job.payload_text) < job_detail.LONGEST_PAYLOAD
        value = decode_leniently(job.payload_text) if is_whole else RawPayload("")
        if isinstance(value, RawPayload) or not job.task_identifier:
            return {}
        value = value if sees else redact(value)
        try:
            text, shown = written(value), pprint.pformat(value, width=88, sort_dicts=False)
        except (ValueError, RecursionError):
            return {}
        run_at = job.run_at if not job.is_due and formatting.FIRST < job.run_at < formatting.LAST else None
        flags = flags_of(job.flags_text)
        sql = add_job_call(
            job.task_identifier,
            text,
            schema=conf.current().schema,
            queue_name=job.queue_name,
            run_at=run_at,
            max_attempts=job.max_attempts,
            job_key=job.key,
            priority=job.priority,
            flags=flags,
        )
        return {"python": _python(job, shown, run_at, flags), "sql": sql}


def _python(job: job_detail.JobDetail, payload: str, run_at: datetime | None, flags: list[str]) -> str:
    arguments = [repr(job.task_identifier), payload]
    options = {
        "queue_name": job.queue_name,
        "max_attempts": job.max_attempts if job.max_attempts != 25 else None,
        "job_key": job.key,
        "priority": job.priority or None,
        "flags": flags or None,
    }
    arguments += [f"{name}={value!r}" for name, value in options.items() if value is not None]
    imports = ["from django_graphile_worker import add_job"]
    if run_at is not None:
        imports.insert(0, "from datetime import datetime")
        arguments.append(f"run_at=datetime.fromisoformat({run_at.isoformat()!r})")
    body = ",\n".join("    " + argument.replace("\n", "\n    ") for argument in arguments)
    return "\n".join([*imports, "", f"add_job(\n{body},\n)"])
