"""Recurring tasks: when they run, when they ran, and the way to run one now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, URLResolver, path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_graphile_worker import api, schedule
from django_graphile_worker.admin import audit, databases, formatting
from django_graphile_worker.admin.pages import Page, page, posted
from django_graphile_worker.crontab import CronItem, describe, upcoming
from django_graphile_worker.exceptions import CrontabError, GraphileWorkerError
from django_graphile_worker.models import RecurringTask
from django_graphile_worker.sql import paused_crontabs
from django_graphile_worker.sql.crontabs import KnownCrontab

NEXT_RUNS = 5
# A callable has to be asked minute by minute.
LOOK_AHEAD = timedelta(days=2)


class RecurringTaskAdmin(Page):
    """The crontab, wherever it is written, beside what the database knows of it."""

    page_title = gettext_lazy("Recurring")

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        run = self.admin_site.admin_view(self.run_view)
        return [path("run/", run, name="graphile_worker_recurringtask_run"), *super().get_urls()]

    def has_run_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may(request, "run_recurringtask")

    @page
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        items, mistakes = _items()
        with databases.reading(databases.alias_of(request)) as (cursor, schema):
            known = paused_crontabs.known_items(cursor, schema=schema)
        names = {item.name for item in items}
        now = timezone.now()
        context = {
            "items": [self._line(item, known.get(item.name), now) for item in items],
            "mistakes": mistakes,
            "forgotten": [
                {
                    "name": name,
                    "known_since": formatting.moment(each.known_since),
                    "last": _("paused") if each.is_paused else formatting.moment(each.last_execution),
                }
                for name, each in sorted(known.items())
                if name not in names
            ]
            if not mistakes
            else [],
            "run_url": self.url(request, "recurringtask", "run"),
            "may_run": self.has_run_permission(request),
        }
        return self.render(request, "recurring.html", context)

    @page
    @posted
    def run_view(self, request: HttpRequest) -> HttpResponse:
        self.require(self.has_run_permission(request))
        name = request.POST.get("item", "")
        item = next((each for each in _items()[0] if each.name == name), None)
        if item is None:
            raise Http404
        alias = databases.alias_of(request)
        with databases.writing(alias):
            job = _add_now(item, alias)
            audit.note(request, RecurringTask, name, name, _("Run now, as job #%(id)s.") % {"id": job.id})
        messages.success(request, _("Added %(task)s #%(id)s.") % {"task": item.task, "id": job.id})
        return HttpResponseRedirect(self.url(request, "recurringtask"))

    def _line(self, item: CronItem, known: KnownCrontab | None, now: datetime) -> dict[str, Any]:
        is_paused = known is not None and known.is_paused
        coming = () if is_paused else _next_runs(item, now)
        return {
            "is_paused": is_paused,
            "name": item.name,
            "task": item.task,
            "pattern": item.match if isinstance(item.match, str) else _("a function"),
            "words": describe(item),
            "next_runs": [(formatting.moment(each, now), formatting.exact(each)) for each in coming],
            "last": formatting.moment(known.last_execution) if known else "",
            "known_since": formatting.moment(known.known_since) if known else "",
            "is_known": known is not None,
            "backfill": formatting.duration(item.period.total_seconds()) if item.period else "",
            "queue": item.queue_name,
        }


def _items() -> tuple[tuple[CronItem, ...], list[str]]:
    try:
        return schedule.collect(), []
    except CrontabError as error:
        return (), [str(mistake) for mistake in error.mistakes]
    except GraphileWorkerError as error:
        return (), [str(error)]


def _next_runs(item: CronItem, now: datetime) -> tuple[datetime, ...]:
    try:
        return upcoming(item, now, NEXT_RUNS, look_ahead=LOOK_AHEAD)
    except Exception:  # an item's match may be a function of the user's
        return ()


def _add_now(item: CronItem, alias: str) -> Any:
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:00.000Z")
    payload = {**(item.payload or {}), "_cron": {"ts": stamp, "backfilled": False}}
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
