"""Who works: every registered process, and whoever else holds jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, path
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_graphile_worker.admin import databases, formatting, health
from django_graphile_worker.admin.pages import page, posted
from django_graphile_worker.admin.unlock import UnlockingPage
from django_graphile_worker.sql.inspection import lock_holders

MOST_RUNNING = 20


@dataclass(frozen=True, slots=True)
class WorkerLine:
    """A worker in the list."""

    id: str
    status: str
    status_name: str
    place: str
    version: str
    since: SafeString | str
    last_beat: SafeString | str
    usage: str
    share: int
    held: str
    running: list[dict[str, Any]]
    tasks: list[str]
    can_unlock: bool


class WorkerAdmin(UnlockingPage):
    """Workers, what they run, and the way to free what a dead one held."""

    page_title = gettext_lazy("Workers")

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        unlock = self.admin_site.admin_view(self.unlock_view)
        return [path("unlock/", unlock, name="graphile_worker_worker_unlock"), *super().get_urls()]

    @page
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        with databases.reading(databases.alias_of(request)) as (cursor, schema):
            found = lock_holders.holders(cursor, schema=schema)
        may_unlock = self.has_unlock_permission(request)
        lines = [self._line(request, holder, may_unlock) for holder in found]
        context = {
            "workers": [line for line in lines if line.status != "stranger"],
            "strangers": [line for line in lines if line.status == "stranger"],
            "unlock_url": self.url(request, "worker", "unlock"),
            "may_unlock": may_unlock,
        }
        return self.render(request, "workers.html", context)

    @page
    @posted
    def unlock_view(self, request: HttpRequest) -> HttpResponse:
        return self.unlock(request, self.url(request, "worker"))

    def _line(self, request: HttpRequest, holder: lock_holders.Holder, may_unlock: bool) -> WorkerLine:
        about = holder.metadata
        running = self._running(request, about.get("running"))
        concurrency = about.get("concurrency")
        slots = concurrency if isinstance(concurrency, int) and concurrency > 0 else None
        status, name = _status(holder, about)
        return WorkerLine(
            id=holder.id,
            status=status,
            status_name=name,
            place=" ".join(str(about[key]) for key in ("host", "pid") if key in about),
            version=str(about.get("version", "")),
            since=formatting.moment(holder.started_at),
            last_beat=formatting.moment(holder.last_heartbeat_at),
            usage=f"{len(running)} / {slots}" if slots else str(len(running)),
            share=min(100, round(100 * len(running) / slots)) if slots else 0,
            held=_held(holder),
            running=running[:MOST_RUNNING],
            tasks=sorted(health.tasks_of(holder)),
            # A live one gives everything back when it is stopped.
            can_unlock=may_unlock and bool(holder.jobs or holder.queues) and not health.is_alive(holder),
        )

    def _running(self, request: HttpRequest, running: Any) -> list[dict[str, Any]]:
        """What a worker says it runs; none of it can be relied on."""
        entries = [each for each in running if isinstance(each, dict)] if isinstance(running, list) else []
        return [
            {
                "id": each.get("job_id"),
                "task": str(each.get("task", "")),
                "since": formatting.moment(_time(each.get("started_at"))),
                "url": self.url(request, "job", "change", each["job_id"])
                if isinstance(each.get("job_id"), int)
                else "",
            }
            for each in entries
        ]


def _status(holder: lock_holders.Holder, about: Any) -> tuple[str, str]:
    if holder.started_at is None:
        return "stranger", _("not registered")
    if not health.is_alive(holder):
        return "dead", _("silent")
    if about.get("is_stopping"):
        return "stopping", _("stopping")
    return ("polling", _("polling")) if about.get("is_listening") is False else ("alive", _("alive"))


def _held(holder: lock_holders.Holder) -> str:
    parts = [formatting.jobs(holder.jobs)] if holder.jobs else []
    if holder.queues:
        parts.append(ngettext("%(number)s queue", "%(number)s queues", holder.queues) % {"number": holder.queues})
    since = f" ({formatting.duration(holder.oldest_lock_seconds)})" if parts else ""
    return ", ".join(parts) + since


def _time(value: Any) -> datetime | None:
    """A time as seconds since 1970, or as ISO text."""
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
