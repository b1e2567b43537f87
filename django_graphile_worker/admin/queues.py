"""Named queues."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, path
from django.utils.translation import gettext_lazy

from django_graphile_worker.admin import databases, moments
from django_graphile_worker.admin.chips import Chip
from django_graphile_worker.admin.pages import page, posted
from django_graphile_worker.admin.unlocking import UnlockingPage
from django_graphile_worker.sql.inspection import queue_depths
from django_graphile_worker.sql.inspection.criteria import State

PAGE_SIZE = 50


class JobQueueAdmin(UnlockingPage):
    """Depth, oldest job, and who has each queue."""

    page_title = gettext_lazy("Queues")

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        unlock = self.admin_site.admin_view(self.unlock_view)
        return [path("unlock/", unlock, name="graphile_worker_jobqueue_unlock"), *super().get_urls()]

    @page
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        asked = {name: request.GET.get(name, "").replace("\x00", "")[:200] for name in ("q", "after")}
        only_held = request.GET.get("held") == "1"
        with databases.reading(databases.alias_of(request)) as (cursor, schema):
            found = queue_depths.queues(
                cursor,
                schema=schema,
                limit=PAGE_SIZE + 1,
                after=asked["after"],
                search=asked["q"],
                only_held=only_held,
            )
        has_more, found = len(found) > PAGE_SIZE, found[:PAGE_SIZE]
        held = "1" if only_held else None
        context = {
            "queues": [self._line(request, queue) for queue in found],
            "query": asked["q"],
            "only_held": only_held,
            "all_url": self.url(request, "jobqueue", q=asked["q"]),
            "held_url": self.url(request, "jobqueue", q=asked["q"], held="1"),
            "next_url": self.url(request, "jobqueue", q=asked["q"], held=held, after=found[-1].queue_name)
            if has_more
            else "",
            "first_url": self.url(request, "jobqueue", q=asked["q"], held=held) if asked["after"] else "",
            "unlock_url": self.url(request, "jobqueue", "unlock"),
            "may_unlock": self.has_unlock_permission(request),
        }
        return self.render(request, "queues.html", context)

    @page
    @posted
    def unlock_view(self, request: HttpRequest) -> HttpResponse:
        return self.unlock(request, self.url(request, "jobqueue"))

    def _line(self, request: HttpRequest, queue: queue_depths.QueueDepth) -> dict[str, Any]:
        return {
            "name": queue.queue_name,
            "number": moments.capped(queue.number, queue_depths.MOST_COUNTED),
            "is_empty": not queue.number,
            "oldest": moments.moment(queue.oldest),
            "holder": queue.locked_by,
            "since": moments.moment(queue.locked_at),
            "running": f"{queue.running_task} #{queue.running_id}" if queue.running_id else "",
            "running_url": self.url(request, "job", "change", queue.running_id) if queue.running_id else "",
            "jobs_url": self.url(request, "job", q=str(Chip("queue", queue.queue_name)), state=State.READY.value),
        }
