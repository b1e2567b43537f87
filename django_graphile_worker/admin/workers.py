"""The workers page: registered workers, others that hold jobs or queues, and force-unlocking them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, URLResolver, path
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from django_graphile_worker import api, conf
from django_graphile_worker.admin import audit, databases, formatting
from django_graphile_worker.admin.pages import PageAdmin, explain_database_errors, require_post
from django_graphile_worker.admin.search_terms import SearchTerm
from django_graphile_worker.admin.shown_progress import shown_progress
from django_graphile_worker.models import Worker
from django_graphile_worker.sql.inspection import lock_holders
from django_graphile_worker.sql.inspection.job_list import State
from django_graphile_worker.sql.inspection.lock_holders import Held, HeldJob, Holder

MAX_RUNNING = 20


class UnlockAdmin(PageAdmin):
    """The base of pages that can force-unlock a worker: confirmed by the user, and written to the admin's log."""

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        name = f"graphile_worker_{self.opts.model_name}_unlock"
        return [path("unlock/", self.admin_site.admin_view(self.unlock_view), name=name), *super().get_urls()]

    def has_unlock_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_app_permission(request, "unlock_worker")

    @explain_database_errors
    @require_post
    def unlock_view(self, request: HttpRequest) -> HttpResponse:
        """Ask for confirmation, then unlock all jobs and queues of the worker. A live worker needs a second consent."""
        self.require(self.has_unlock_permission(request))
        worker_id = request.POST.get("worker", "").replace("\x00", "")
        back_url = self.url_or_index(request, self.opts.model_name or "")
        alias = databases.selected_alias(request)
        with databases.reading(alias) as (cursor, schema):
            held = lock_holders.held_by(cursor, worker_id, schema=schema)
            holders = [holder for holder in lock_holders.holders(cursor, schema=schema) if holder.id == worker_id]
        if not held:
            messages.warning(request, _("%(worker)s holds no jobs or queues.") % {"worker": worker_id})
            return HttpResponseRedirect(back_url)
        if "confirmed" in request.POST and ("anyway" in request.POST or not any(map(_is_alive, holders))):
            _unlock(request, worker_id, held, alias)
            return HttpResponseRedirect(back_url)
        context = {
            "title": _("Force-unlock %(worker)s?") % {"worker": holders[0].host if holders else worker_id},
            "worker": worker_id,
            "held": self._held_rows(request, held),
            "workers_url": self.url(request, "worker"),
            "is_alive": any(map(_is_alive, holders)),
            "silence": formatting.duration(holders[0].silent_seconds if holders else None),
            "is_registered": any(holder.is_registered for holder in holders),
            "was_refused": "confirmed" in request.POST,
            "back_url": back_url,
        }
        return self.render(request, "unlock.html", context)

    def _held_rows(self, request: HttpRequest, held: Sequence[Held]) -> list[dict[str, Any]]:
        """Return what the worker holds, without the jobs that the user may not see."""
        visible = self.visible_among(request, [int(each.id) for each in held if each.kind == "job"])
        return [self._held_row(request, each) for each in held if each.kind != "job" or int(each.id) in visible]

    def _held_row(self, request: HttpRequest, held: Held) -> dict[str, Any]:
        is_job = held.kind == "job"
        url = (
            self.url(request, "job", "change", held.id)
            if is_job
            else self.url(request, "job", q=str(SearchTerm("queue", held.name)))
        )
        return {
            "is_job": is_job,
            "name": f"{held.name} #{held.id}" if is_job else held.name,
            "url": url,
            "since": formatting.relative_time(held.since),
        }


def _unlock(request: HttpRequest, worker_id: str, held: Sequence[Held], alias: str) -> None:
    with databases.writing(alias):
        api.force_unlock_workers([worker_id], using=alias)
        names = audit.some_of([f"{each.kind} {each.id}" for each in held], len(held))
        message = audit.Message(gettext_noop("Force-unlocked: %(held)s."), {"held": names})
        audit.log(request, Worker, worker_id, worker_id, message)
    text = _("Force-unlocked %(worker)s. Jobs and queues released: %(number)s.")
    messages.success(request, text % {"worker": worker_id, "number": formatting.number(len(held))})


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
    # The URL of the jobs that are not shown, and their number.
    more_url: str
    more: int
    tasks: list[str]
    can_unlock: bool


class WorkerAdmin(UnlockAdmin):
    """Workers and the jobs that they run. Jobs and queues of a dead worker can be force-unlocked."""

    @explain_database_errors
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.require(self.has_view_permission(request))
        alias = databases.selected_alias(request)
        visible_ids = self.visible_ids(request, alias)
        with databases.reading(alias) as (cursor, schema):
            holders = lock_holders.holders(cursor, schema=schema)
            held = lock_holders.held_jobs(cursor, schema=schema, most=MAX_RUNNING, within=visible_ids)
        cards = [self._card(request, holder, held.get(holder.id, [])) for holder in holders]
        context = {
            "workers": [card for card in cards if card.status != "unregistered"],
            "unregistered_workers": [card for card in cards if card.status == "unregistered"],
            **_totals(holders),
            "versions": formatting.versions(lock_holders.versions_of(holders, conf.current().worker_timeout)),
            "unlock_url": self.url(request, "worker", "unlock"),
        }
        return self.render(request, "workers.html", context)

    def _card(self, request: HttpRequest, holder: Holder, jobs: list[HeldJob]) -> WorkerCard:
        metadata, slots = holder.metadata, holder.slots
        status, name = _status(holder, metadata)
        of_worker = str(SearchTerm("worker", holder.id))
        # A live worker returns its jobs when it is stopped, so the page has no button to unlock it.
        may_unlock = self.has_unlock_permission(request) and not _is_alive(holder)
        return WorkerCard(
            id=holder.id,
            status=status,
            status_name=name,
            host_and_pid=" ".join(str(metadata[key]) for key in ("host", "pid") if key in metadata),
            version=str(metadata.get("version", "")),
            started_at=formatting.relative_time(holder.started_at),
            last_heartbeat=formatting.relative_time(holder.last_heartbeat_at),
            usage=formatting.part(holder.slots_in_use, slots) if slots else formatting.number(holder.jobs),
            usage_percent=round(100 * holder.slots_in_use / slots) if slots else 0,
            held=_held(holder),
            held_url=self.url(request, "job", q=of_worker) if holder.jobs else "",
            running=[self._running_job(request, job) for job in jobs],
            more_url=self.url(request, "job", state=State.RUNNING.value, q=of_worker),
            more=max(holder.jobs - len(jobs), 0) if len(jobs) == MAX_RUNNING else 0,
            tasks=sorted(holder.tasks),
            can_unlock=may_unlock and bool(holder.jobs or holder.queues),
        )

    def _running_job(self, request: HttpRequest, job: HeldJob) -> dict[str, Any]:
        sees_payloads = self.has_app_permission(request, "view_payload")
        return {
            "id": job.id,
            "task": job.task_identifier or _("unknown task"),
            "started_at": formatting.relative_time(job.locked_at),
            "progress": shown_progress(job.progress, sees_payloads=sees_payloads, started_at=job.locked_at),
            "url": self.url(request, "job", "change", job.id),
        }


def _is_alive(holder: Holder) -> bool:
    return holder.is_alive(conf.current().worker_timeout)


def _totals(holders: Sequence[Holder]) -> dict[str, Any]:
    """Return the slots in use over all live workers, if there are several."""
    slots = lock_holders.slots_of(holders, conf.current().worker_timeout)
    if slots.workers < 2 or not slots.total:
        return {}
    text = _("%(workers)s workers are alive. Slots in use: %(slots)s")
    values = {"workers": formatting.number(slots.workers), "slots": formatting.part(slots.in_use, slots.total)}
    return {"totals": text % values, "total_percent": round(100 * slots.in_use / slots.total)}


def _status(holder: Holder, metadata: dict[str, Any]) -> tuple[str, str]:
    if not holder.is_registered:
        return "unregistered", _("not registered")
    if not _is_alive(holder):
        return "dead", _("no heartbeat")
    if metadata.get("is_stopping"):
        return "stopping", _("stopping")
    return ("polling", _("polling")) if metadata.get("is_listening") is False else ("alive", _("alive"))


def _held(holder: Holder) -> str:
    parts = [formatting.job_count(holder.jobs)] if holder.jobs else []
    if holder.queues:
        parts.append(ngettext("%(number)s queue", "%(number)s queues", holder.queues) % {"number": holder.queues})
    age = f" ({formatting.duration(holder.oldest_lock_seconds)})" if parts else ""
    return ", ".join(parts) + age
