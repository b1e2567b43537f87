"""The workers page: registered workers, and others that hold jobs or queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, path
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker.admin import databases, formatting
from django_graphile_worker.admin.overview import health
from django_graphile_worker.admin.pages import explain_database_errors, require_post
from django_graphile_worker.admin.search.search_query import SearchTerm
from django_graphile_worker.admin.shown_progress import shown_progress
from django_graphile_worker.admin.unlock import UnlockAdmin
from django_graphile_worker.models import Job
from django_graphile_worker.sql.inspection import lock_holders
from django_graphile_worker.sql.inspection.job_search.criteria import State

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
    held_url: str
    running: list[dict[str, Any]]
    # The address of the jobs that are not shown, and their number.
    more_url: str
    more: int
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
        alias = databases.selected_alias(request)
        visible_ids = self.visible_ids(request, alias)
        with databases.reading(alias) as (cursor, schema):
            holders = lock_holders.holders(cursor, schema=schema)
            held = lock_holders.held_jobs(cursor, schema=schema, most=MOST_RUNNING, within=visible_ids)
        cards = [self._card(request, holder, held.get(holder.id, [])) for holder in holders]
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

    def _card(self, request: HttpRequest, holder: lock_holders.Holder, jobs: list[lock_holders.HeldJob]) -> WorkerCard:
        metadata = holder.metadata
        concurrency = metadata.get("concurrency")
        slots = concurrency if isinstance(concurrency, int) and concurrency > 0 else None
        # A worker may hold more jobs than it has slots: the others wait inside it.
        used = holder.jobs if slots is None else min(holder.jobs, slots)
        status, name = _status(holder, metadata)
        return WorkerCard(
            id=holder.id,
            status=status,
            status_name=name,
            host_and_pid=" ".join(str(metadata[key]) for key in ("host", "pid") if key in metadata),
            version=str(metadata.get("version", "")),
            started_at=formatting.relative_time(holder.started_at),
            last_heartbeat=formatting.relative_time(holder.last_heartbeat_at),
            usage=f"{used} / {slots}" if slots else str(used),
            usage_percent=round(100 * used / slots) if slots else 0,
            held=_held(holder),
            held_url=self.url(request, "job", q=str(SearchTerm("worker", holder.id))) if holder.jobs else "",
            running=[self._running_job(request, job) for job in jobs],
            more_url=self._jobs_url(request, holder),
            more=max(holder.jobs - len(jobs), 0) if len(jobs) == MOST_RUNNING else 0,
            tasks=sorted(health.tasks_of(holder)),
            can_unlock=self._can_unlock(request, holder),
        )

    def _can_unlock(self, request: HttpRequest, holder: lock_holders.Holder) -> bool:
        # A live worker returns its jobs when it is stopped, so the page has no button to unlock it.
        holds_anything = bool(holder.jobs or holder.queues)
        return self.has_unlock_permission(request) and holds_anything and not health.is_alive(holder)

    def _may_view_jobs(self, request: HttpRequest) -> bool:
        page = self.admin_site._registry.get(Job)
        return page is not None and page.has_view_permission(request)

    def _jobs_url(self, request: HttpRequest, holder: lock_holders.Holder) -> str:
        if not self._may_view_jobs(request):
            return ""
        return self.url(request, "job", state=State.RUNNING.value, q=str(SearchTerm("worker", holder.id)))

    def _running_job(self, request: HttpRequest, job: lock_holders.HeldJob) -> dict[str, Any]:
        sees_payloads = self.has_app_permission(request, "view_payload")
        return {
            "id": job.id,
            "task": job.task_identifier or _("unknown task"),
            "started_at": formatting.relative_time(job.locked_at),
            "progress": shown_progress(job.progress, sees_payloads=sees_payloads, started_at=job.locked_at),
            "url": self.url(request, "job", "change", job.id) if self._may_view_jobs(request) else "",
        }


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
