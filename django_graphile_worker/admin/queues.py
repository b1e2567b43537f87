"""The queues page: named queues, their depth, and the workers that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, path
from django.utils.translation import gettext_lazy

from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.pages import explain_database_errors, require_post
from django_graphile_worker.admin.search.search_query import SearchTerm, waiting_in_queue
from django_graphile_worker.admin.unlock import UnlockAdmin
from django_graphile_worker.sql.inspection import queue_depths

PAGE_SIZE = 50


class JobQueueAdmin(UnlockAdmin):
    """The queues with their depth, their oldest job, and the worker that holds each."""

    page_title = gettext_lazy("Queues")

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        unlock = self.admin_site.admin_view(self.unlock_view)
        return [path("unlock/", unlock, name="graphile_worker_jobqueue_unlock"), *super().get_urls()]

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        asked = {name: request.GET.get(name, "").replace("\x00", "")[:200] for name in ("q", "after", "before")}
        only_held = request.GET.get("held") == "1"
        with databases.reading(databases.selected_alias(request)) as session:
            page = _read_page(session, asked["after"], asked["before"], search=asked["q"], only_held=only_held)

        def page_url(**position: Any) -> str:
            return self.url(request, "jobqueue", q=asked["q"], held="1" if only_held else None, **position)

        context = {
            "queues": [self._row(request, queue) for queue in page.queues],
            "query": asked["q"],
            "only_held": only_held,
            "all_url": self.url(request, "jobqueue", q=asked["q"]),
            "held_url": self.url(request, "jobqueue", q=asked["q"], held="1"),
            "next_url": page_url(after=page.after) if page.after else "",
            "previous_url": page_url(before=page.before) if page.before else "",
            "first_url": page_url() if asked["after"] or asked["before"] else "",
            "unlock_url": self.url(request, "jobqueue", "unlock"),
            "may_unlock": self.has_unlock_permission(request),
            "may_pause": self.has_pause_permission(request),
        }
        return self.render(request, "queues.html", context)

    @explain_database_errors
    @require_post
    def unlock_view(self, request: HttpRequest) -> HttpResponse:
        return self.unlock(request, self.url(request, "jobqueue"))

    def _row(self, request: HttpRequest, queue: queue_depths.QueueDepth) -> dict[str, Any]:
        return {
            "name": queue.queue_name,
            "number": formatting.capped_number(queue.number, queue_depths.MOST_COUNTED),
            "is_empty": not queue.number,
            "oldest": formatting.relative_time(queue.oldest),
            "worker_id": None if queue.is_paused else queue.locked_by,
            "locked_at": formatting.relative_time(queue.paused_at if queue.is_paused else queue.locked_at),
            "is_paused": queue.is_paused,
            "paused_until": formatting.relative_time(queue.paused_until) if queue.paused_until else "",
            "paused_by": queue.paused_by,
            "pause_url": self.url(request, "pausedwork", kind="queue", name=queue.queue_name),
            "running_task": queue.running_task,
            "running_id": queue.running_id,
            "running_url": self.url(request, "job", "change", queue.running_id) if queue.running_id else "",
            "jobs_url": self.url(request, "job", q=str(SearchTerm("queue", queue.queue_name))),
            "waiting_url": self.url(request, "job", q=waiting_in_queue(queue.queue_name)),
        }


@dataclass(frozen=True, slots=True)
class QueuesPage:
    """The queues on a page, and the names at which the previous and the next page begin, if there are such pages."""

    queues: Sequence[queue_depths.QueueDepth]
    before: str | None
    after: str | None


def _read_page(session: databases.Session, after: str, before: str, **conditions: Any) -> QueuesPage:
    """Read the page after or before a name. If fewer than a full page come before it, read the first page."""
    cursor, schema = session
    if before:
        found = queue_depths.queues(cursor, schema=schema, limit=PAGE_SIZE + 1, before=before, **conditions)
        if len(found) > PAGE_SIZE:
            shown = found[-PAGE_SIZE:]
            return QueuesPage(shown, shown[0].queue_name, shown[-1].queue_name)
        after = ""
    found = queue_depths.queues(cursor, schema=schema, limit=PAGE_SIZE + 1, after=after, **conditions)
    shown = found[:PAGE_SIZE]
    first = shown[0].queue_name if shown else after
    return QueuesPage(shown, first if after else None, shown[-1].queue_name if len(found) > PAGE_SIZE else None)
