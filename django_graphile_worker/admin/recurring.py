"""The recurring page: the next runs and the last run of each crontab item, and a button that runs it now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, URLResolver, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_graphile_worker import api, project_crontab
from django_graphile_worker.admin import audit, databases, formatting, late_schedules
from django_graphile_worker.admin.pages import PageAdmin, explain_database_errors, require_post
from django_graphile_worker.admin.schedule_phrases import run_time, schedule_in_words
from django_graphile_worker.crontab import CronItem, upcoming
from django_graphile_worker.exceptions import CrontabError, GraphileWorkerError
from django_graphile_worker.models import RecurringTask
from django_graphile_worker.sql import paused_crontabs
from django_graphile_worker.sql.crontabs import KnownCrontab

NEXT_RUNS = 5
# The search for the next runs of a callable calls it for each minute, so it ends after this time.
LOOK_AHEAD = timedelta(days=2)


class RecurringTaskAdmin(PageAdmin):
    """The crontab items of all sources, with the record of each in the database."""

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        run = self.admin_site.admin_view(self.run_view)
        return [path("run/", run, name="graphile_worker_recurringtask_run"), *super().get_urls()]

    def has_run_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_app_permission(request, "run_recurringtask")

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        items, mistakes = read_crontab()
        with databases.reading(databases.selected_alias(request)) as (cursor, schema):
            known = paused_crontabs.known_items(cursor, schema=schema)
        names = {item.name for item in items}
        others = {name: each for name, each in sorted(known.items()) if name not in names}
        now = timezone.now()
        context = {
            "items": [_row(item, known.get(item.name), now) for item in items],
            "mistakes": mistakes,
            # With mistakes the crontab has no items, and every known item would be listed as removed.
            "removed_items": [] if mistakes else _removed_items(others),
            "run_url": self.url(request, "recurringtask", "run"),
            "may_run": self.has_run_permission(request),
        }
        return self.render(request, "recurring.html", context)

    @explain_database_errors
    @require_post
    def run_view(self, request: HttpRequest) -> HttpResponse:
        self.require(self.has_run_permission(request))
        name = request.POST.get("item", "")
        item = next((each for each in read_crontab()[0] if each.name == name), None)
        if item is None:
            raise Http404
        alias = databases.selected_alias(request)
        with databases.writing(alias):
            job = _add_job_now(item, alias)
            message = audit.Message(gettext_noop("Run now, as job #%(id)s."), {"id": str(job.id)})
            audit.log(request, RecurringTask, name, name, message)
        messages.success(request, self._added_message(request, item.task, job.id))
        return HttpResponseRedirect(self.url_or_index(request, "recurringtask"))

    def _added_message(self, request: HttpRequest, task: str, job_id: int) -> str:
        """Return the message about the new job, with a link if the user may see jobs."""
        message = _("Added %(task)s #%(id)s.") % {"task": task, "id": job_id}
        job_url = self.url(request, "job", "change", job_id)
        return format_html('<a href="{}">{}</a>', job_url, message) if job_url else message


def _row(item: CronItem, known: KnownCrontab | None, now: datetime) -> dict[str, Any]:
    is_paused = known is not None and known.is_paused
    next_runs = () if is_paused else _next_runs(item, now)
    due = late_schedules.due_since(item, known, now)
    return {
        "is_paused": is_paused,
        "name": item.name,
        "task": item.task,
        "pattern": item.match if isinstance(item.match, str) else _("a function"),
        "description": schedule_in_words(item),
        "later_runs": max(len(next_runs) - 1, 0),
        "next_runs": [(formatting.relative_time(each, now), run_time(item, each)) for each in next_runs],
        "last_run": formatting.relative_time(known.last_execution) if known else "",
        "due_since": "" if due is None else formatting.relative_time(due, now),
        "is_known": known is not None,
        "backfill": formatting.duration(item.period.total_seconds()) if item.period else "",
        "queue": item.queue_name,
    }


def _removed_items(known: Mapping[str, KnownCrontab]) -> list[dict[str, Any]]:
    """Return the items that workers have scheduled and that are no longer in the crontab of this site."""
    return [
        {
            "name": name,
            "known_since": formatting.relative_time(each.known_since),
            "last_run": _("paused") if each.is_paused else formatting.relative_time(each.last_execution),
        }
        for name, each in known.items()
    ]


def read_crontab() -> tuple[tuple[CronItem, ...], list[str]]:
    """Return the items and no mistakes, or no items and the mistakes."""
    try:
        return project_crontab.collect(), []
    except CrontabError as error:
        return (), [str(mistake) for mistake in error.mistakes]
    except GraphileWorkerError as error:
        return (), [str(error)]


def _next_runs(item: CronItem, now: datetime) -> tuple[datetime, ...]:
    try:
        return upcoming(item, now, NEXT_RUNS, look_ahead=LOOK_AHEAD)
    except Exception:  # the match of an item may be a function of the project, which may raise anything
        return ()


def _add_job_now(item: CronItem, alias: str) -> Any:
    timestamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:00.000Z")
    payload = {**(item.payload or {}), "_cron": {"ts": timestamp, "backfilled": False}}
    return api.add_job(
        item.task,
        payload,
        queue_name=item.queue_name,
        max_attempts=item.max_attempts,
        job_key=item.job_key,
        job_key_mode=item.job_key_mode,
        priority=item.priority,
        flags=item.flags,
        using=alias,
    )
