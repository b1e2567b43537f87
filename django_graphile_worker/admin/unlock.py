"""Force-unlocking a worker: confirmed by the user, and written to the admin's log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_graphile_worker import api
from django_graphile_worker.admin import audit, databases, formatting
from django_graphile_worker.admin.overview import health
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.admin.search.search_query import SearchTerm
from django_graphile_worker.models import Worker
from django_graphile_worker.sql.inspection import lock_holders


class UnlockAdmin(PageAdmin):
    """The base of pages that can force-unlock a worker."""

    def has_unlock_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_app_permission(request, "unlock_worker")

    def unlock(self, request: HttpRequest, back_url: str) -> HttpResponse:
        """Ask for confirmation, then unlock all jobs and queues of the worker. A live worker needs a second consent."""
        self.require(self.has_unlock_permission(request))
        worker_id = request.POST.get("worker", "").replace("\x00", "")
        alias = databases.selected_alias(request)
        with databases.reading(alias) as (cursor, schema):
            held = lock_holders.held_by(cursor, worker_id, schema=schema)
            holders = [holder for holder in lock_holders.holders(cursor, schema=schema) if holder.id == worker_id]
        if not held:
            messages.warning(request, _("%(worker)s holds no jobs or queues.") % {"worker": worker_id})
            return HttpResponseRedirect(back_url)
        is_alive = any(health.is_alive(holder) for holder in holders)
        if "confirmed" in request.POST and (not is_alive or "anyway" in request.POST):
            _unlock(request, worker_id, held, alias)
            return HttpResponseRedirect(back_url)
        return self._confirm(request, worker_id, held, holders, back_url)

    def _confirm(
        self,
        request: HttpRequest,
        worker_id: str,
        held: Sequence[lock_holders.Held],
        holders: Sequence[lock_holders.Holder],
        back_url: str,
    ) -> HttpResponse:
        context = {
            "title": _("Force-unlock %(worker)s?") % {"worker": health.host_of(holders[0]) if holders else worker_id},
            "worker": worker_id,
            "held": [self._held_row(request, each) for each in held],
            "workers_url": self.url(request, "worker"),
            "is_alive": any(health.is_alive(holder) for holder in holders),
            "silence": formatting.duration(holders[0].silent_seconds if holders else None),
            "is_registered": any(holder.is_registered for holder in holders),
            "was_refused": "confirmed" in request.POST,
            "back_url": back_url,
        }
        return self.render(request, "unlock.html", context)

    def _held_row(self, request: HttpRequest, held: lock_holders.Held) -> dict[str, Any]:
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


def _unlock(request: HttpRequest, worker_id: str, held: Sequence[lock_holders.Held], alias: str) -> None:
    with databases.writing(alias):
        api.force_unlock_workers([worker_id], using=alias)
        names = ", ".join(f"{each.kind} {each.id}" for each in held)
        message = audit.Message(gettext_noop("Force-unlocked: %(held)s."), {"held": names})
        audit.log(request, Worker, worker_id, worker_id, message)
    text = _("Force-unlocked %(worker)s. Jobs and queues released: %(number)s.")
    messages.success(request, text % {"worker": worker_id, "number": formatting.number(len(held))})
