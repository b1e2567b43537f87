"""The page of a job that does not exist: what became of it, or that there never was one."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import LogEntry
from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_graphile_worker import conf
from django_graphile_worker.admin import audit, databases, formatting
from django_graphile_worker.admin.jobs.detail.ending import ending_of
from django_graphile_worker.admin.jobs.detail.facts import Fact
from django_graphile_worker.admin.jobs.detail.result import read_result, result_context
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.admin.search.search_query import SearchTerm
from django_graphile_worker.results.reading import Result
from django_graphile_worker.sql.inspection import job_detail
from django_graphile_worker.sql.inspection.past_attempts import HistoryRow


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
