"""The queues page: named queues, their depth, and the workers that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse

from django_graphile_worker import conf, models
from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.pages import explain_database_errors
from django_graphile_worker.admin.search_terms import SearchTerm, waiting_in_queue
from django_graphile_worker.admin.workers import UnlockAdmin
from django_graphile_worker.sql.inspection import queue_depths

PAGE_SIZE = 50
ACTIVE, HELD, ALL = "active", "held", "all"
# The last page of active queues: no more of them are put in order.
LAST_PAGE = 2 * queue_depths.MAX_ACTIVE // PAGE_SIZE


class JobQueueAdmin(UnlockAdmin):
    """The queues with their depth, their oldest job, and the worker that holds each."""

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        asked = {name: request.GET.get(name, "").replace("\x00", "")[:200] for name in ("q", "after", "before")}
        show = _shown_part(request, asked)
        context = self._active_context(request) if show == ACTIVE else self._named_context(request, asked, show)
        about = {
            "query": asked["q"],
            "show": show,
            "active_url": self.url(request, "jobqueue"),
            "all_url": self.url(request, "jobqueue", q=asked["q"], show=ALL),
            "held_url": self.url(request, "jobqueue", q=asked["q"], held="1"),
            "unlock_url": self.url(request, "jobqueue", "unlock"),
            "may_unlock": self.has_unlock_permission(request),
            "may_pause": self.has_pause_permission(request),
        }
        return self.render(request, "queues.html", about | context)

    def _named_context(self, request: HttpRequest, asked: Mapping[str, str], show: str) -> dict[str, Any]:
        """Return the context of queues in the order of their names: all of them, or those that are held."""
        conditions = {"search": asked["q"], "only_held": show == HELD, "timeout": conf.current().worker_timeout}
        with databases.reading(databases.selected_alias(request)) as session:
            page = _read_page(session, asked["after"], asked["before"], **conditions)

        def page_url(**position: Any) -> str:
            part = {"held": "1"} if show == HELD else {"show": ALL}
            return self.url(request, "jobqueue", q=asked["q"], **part, **position)

        return {
            "queues": self._rows(request, page.queues),
            "next_url": page_url(after=page.after) if page.after else "",
            "previous_url": page_url(before=page.before) if page.before else "",
            "first_url": page_url() if asked["after"] or asked["before"] else "",
        }

    def _active_context(self, request: HttpRequest) -> dict[str, Any]:
        """Return the context of queues that need attention: those of lost workers first, then the fullest."""
        given = request.GET.get("page", "1")
        number = min(max(int(given), 1), LAST_PAGE) if given.isdecimal() and len(given) < 5 else 1
        offset = (number - 1) * PAGE_SIZE
        with databases.reading(databases.selected_alias(request)) as (cursor, schema):
            found = queue_depths.active_queues(
                cursor, schema=schema, limit=PAGE_SIZE, offset=offset, timeout=conf.current().worker_timeout
            )
        has_next = offset + PAGE_SIZE < found.active
        # On a page after the last, the number of active queues is not known.
        others = max(found.total - found.active, 0) if found.queues or number == 1 else 0
        return {
            "queues": self._rows(request, found.queues),
            "hidden": formatting.capped_number(others, queue_depths.MAX_QUEUES) if others else "",
            "hidden_number": others,
            "is_cut_off": found.active >= queue_depths.MAX_ACTIVE,
            "next_url": self.url(request, "jobqueue", page=number + 1) if has_next else "",
            "previous_url": self.url(request, "jobqueue", page=number - 1) if number > 1 else "",
            "first_url": self.url(request, "jobqueue") if number > 1 else "",
        }

    def _worker_url(self, request: HttpRequest, queue: queue_depths.QueueDepth) -> str:
        """Return the URL of the worker that holds the queue; of its events, if it is not registered any more."""
        if queue.locked_by is None or queue.is_paused:
            return ""
        # A lost worker that another worker has recovered is only in the events.
        model = models.Event if queue.holder_state == "lost" else models.Worker
        page = self.admin_site._registry.get(model)
        if page is None or not page.has_view_permission(request):
            return ""
        if model is models.Event:
            return self.url(request, "event", worker=queue.locked_by)
        return f"{self.url(request, 'worker')}#{quote(f'gw-worker-{queue.locked_by}')}"

    def _rows(self, request: HttpRequest, queues: Sequence[queue_depths.QueueDepth]) -> list[dict[str, Any]]:
        visible = self.visible_among(request, [queue.running_id for queue in queues])
        return [self._row(request, queue, visible) for queue in queues]

    def _row(self, request: HttpRequest, queue: queue_depths.QueueDepth, visible: frozenset[int]) -> dict[str, Any]:
        running_id = queue.running_id if queue.running_id in visible else None
        return {
            "name": queue.queue_name,
            "number": formatting.capped_number(queue.number, queue_depths.MAX_COUNTED),
            "is_empty": not queue.number,
            "oldest": formatting.relative_time(queue.oldest),
            "worker_id": None if queue.is_paused else queue.locked_by,
            "worker_url": self._worker_url(request, queue),
            "is_lost": queue.holder_state == "lost" and not queue.is_paused,
            "locked_at": formatting.relative_time(held_at) if (held_at := queue.paused_at or queue.locked_at) else "",
            "is_paused": queue.is_paused,
            "paused_until": formatting.relative_time(queue.paused_until) if queue.paused_until else "",
            "paused_by": queue.paused_by,
            "pause_url": self.url(request, "pausedwork", kind="queue", name=queue.queue_name),
            # A named queue runs one job at a time.
            "running": formatting.part(1 if queue.running_id is not None else 0, 1),
            "running_task": queue.running_task if running_id else None,
            "running_id": running_id,
            "running_url": self.url(request, "job", "change", running_id) if running_id else "",
            "jobs_url": self.url(request, "job", q=str(SearchTerm("queue", queue.queue_name))),
            "waiting_url": self.url(request, "job", q=waiting_in_queue(queue.queue_name)),
        }


def _shown_part(request: HttpRequest, asked: Mapping[str, str]) -> str:
    """Return which queues the page shows; a search and a position belong to the list by name."""
    if request.GET.get("held") == "1":
        return HELD
    return ALL if request.GET.get("show") == ALL or any(asked.values()) else ACTIVE


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
