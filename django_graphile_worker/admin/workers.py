"""The workers page: registered workers, and others that hold jobs or queues."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, path
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.overview import health
from django_graphile_worker.admin.pages import explain_database_errors, require_post
from django_graphile_worker.admin.unlock import UnlockAdmin
from django_graphile_worker.sql.inspection import lock_holders

MOST_RUNNING = 20


@dataclass(frozen=True, slots=True)
class WorkerCard:
    """A worker as the page shows it."""

    id: str
    status: str
    status_name: str
    host_and_pid: str
    version: str
    started_at: SafeString | str
    last_heartbeat: SafeString | str
    usage: str
    usage_percent: int
    held: str
    running: list[dict[str, Any]]
    tasks: list[str]
    can_unlock: bool


class WorkerAdmin(UnlockAdmin):
    """Workers and the jobs that they run. Jobs and queues of a dead worker can be force-unlocked."""

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        unlock = self.admin_site.admin_view(self.unlock_view)
        return [path("unlock/", unlock, name="graphile_worker_worker_unlock"), *super().get_urls()]

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        with databases.reading(databases.selected_alias(request)) as (cursor, schema):
            holders = lock_holders.holders(cursor, schema=schema)
        cards = [self._card(request, holder) for holder in holders]
        context = {
            "workers": [card for card in cards if card.status != "unregistered"],
            "unregistered_workers": [card for card in cards if card.status == "unregistered"],
            "unlock_url": self.url(request, "worker", "unlock"),
        }
        return self.render(request, "workers.html", context)

    @explain_database_errors
    @require_post
    def unlock_view(self, request: HttpRequest) -> HttpResponse:
        return self.unlock(request, self.url_or_index(request, "worker"))

    def _card(self, request: HttpRequest, holder: lock_holders.Holder) -> WorkerCard:
        metadata = holder.metadata
        running = self._running_jobs(request, metadata.get("running"))
        concurrency = metadata.get("concurrency")
        slots = concurrency if isinstance(concurrency, int) and concurrency > 0 else None
        status, name = _status(holder, metadata)
        return WorkerCard(
            id=holder.id,
            status=status,
            status_name=name,
            host_and_pid=" ".join(str(metadata[key]) for key in ("host", "pid") if key in metadata),
            version=str(metadata.get("version", "")),
            started_at=formatting.relative_time(holder.started_at),
            last_heartbeat=formatting.relative_time(holder.last_heartbeat_at),
            usage=f"{len(running)} / {slots}" if slots else str(len(running)),
            usage_percent=min(100, round(100 * len(running) / slots)) if slots else 0,
            held=_held(holder),
            running=running[:MOST_RUNNING],
            tasks=sorted(health.tasks_of(holder)),
            can_unlock=self._can_unlock(request, holder),
        )

    def _can_unlock(self, request: HttpRequest, holder: lock_holders.Holder) -> bool:
        # A live worker returns its jobs when it is stopped, so the page has no button to unlock it.
        holds_anything = bool(holder.jobs or holder.queues)
        return self.has_unlock_permission(request) and holds_anything and not health.is_alive(holder)

    def _running_jobs(self, request: HttpRequest, running: Any) -> list[dict[str, Any]]:
        """Return the jobs that a worker reports as running. Metadata may contain anything, so every part is checked."""
        entries = [each for each in running if isinstance(each, dict)] if isinstance(running, list) else []
        return [
            {
                "id": each.get("job_id"),
                "task": str(each.get("task", "")),
                "started_at": formatting.relative_time(_time(each.get("started_at"))),
                "url": self.url(request, "job", "change", each["job_id"])
                if isinstance(each.get("job_id"), int)
                else "",
            }
            for each in entries
        ]


def _status(holder: lock_holders.Holder, metadata: dict[str, Any]) -> tuple[str, str]:
    if not holder.is_registered:
        return "unregistered", _("not registered")
    if not health.is_alive(holder):
        return "dead", _("no heartbeat")
    if metadata.get("is_stopping"):
        return "stopping", _("stopping")
    return ("polling", _("polling")) if metadata.get("is_listening") is False else ("alive", _("alive"))


def _held(holder: lock_holders.Holder) -> str:
    parts = [formatting.job_count(holder.jobs)] if holder.jobs else []
    if holder.queues:
        parts.append(ngettext("%(number)s queue", "%(number)s queues", holder.queues) % {"number": holder.queues})
    age = f" ({formatting.duration(holder.oldest_lock_seconds)})" if parts else ""
    return ", ".join(parts) + age


def _time(value: Any) -> datetime | None:
    """Return a time that is given in seconds since 1970 or as ISO text; None for anything else."""
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        parsed = datetime.fromisoformat(value)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
