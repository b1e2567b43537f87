"""Named queues."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, path
from django.utils.translation import gettext_lazy

from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.pages import page, posted
from django_graphile_worker.admin.search import SearchTerm
from django_graphile_worker.admin.unlock import UnlockingPage
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
        asked = {name: request.GET.get(name, "").replace("\x00", "")[:200] for name in ("q", "after", "before")}
        only_held = request.GET.get("held") == "1"
        with databases.reading(databases.alias_of(request)) as (cursor, schema):
            leaf = _turn(cursor, schema, asked["after"], asked["before"], search=asked["q"], only_held=only_held)
        held = "1" if only_held else None

        def address(**place: Any) -> str:
            return self.url(request, "jobqueue", q=asked["q"], held=held, **place)

        context = {
            "queues": [self._line(request, queue) for queue in leaf.queues],
            "query": asked["q"],
            "only_held": only_held,
            "all_url": self.url(request, "jobqueue", q=asked["q"]),
            "held_url": self.url(request, "jobqueue", q=asked["q"], held="1"),
            "next_url": address(after=leaf.after) if leaf.after else "",
            "previous_url": address(before=leaf.before) if leaf.before else "",
            "first_url": address() if asked["after"] or asked["before"] else "",
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
            "number": formatting.capped(queue.number, queue_depths.MOST_COUNTED),
            "is_empty": not queue.number,
            "oldest": formatting.moment(queue.oldest),
            "holder": queue.locked_by,
            "since": formatting.moment(queue.locked_at),
            "running_task": queue.running_task,
            "running_id": queue.running_id,
            "running_url": self.url(request, "job", "change", queue.running_id) if queue.running_id else "",
            "jobs_url": self.url(request, "job", q=str(SearchTerm("queue", queue.queue_name)), state=State.READY.value),
        }


class Leaf(NamedTuple):
    """The queues on a page, and the names beyond which its neighbours begin, if there are any."""

    queues: list[queue_depths.QueueDepth]
    before: str | None
    after: str | None


def _turn(cursor: Any, schema: str, after: str, before: str, **conditions: Any) -> Leaf:
    """The page after a name, or the one before it; never only a part of the first page."""
    if before:
        found = queue_depths.queues(cursor, schema=schema, limit=PAGE_SIZE + 1, before=before, **conditions)
        if len(found) > PAGE_SIZE:
            shown = found[-PAGE_SIZE:]
            return Leaf(shown, shown[0].queue_name, shown[-1].queue_name)
        after = ""
    found = queue_depths.queues(cursor, schema=schema, limit=PAGE_SIZE + 1, after=after, **conditions)
    shown = found[:PAGE_SIZE]
    first = shown[0].queue_name if shown else after
    return Leaf(shown, first if after else None, shown[-1].queue_name if len(found) > PAGE_SIZE else None)
