"""Taking their locks from workers that are gone: asked for twice, and noted."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from django_graphile_worker import api
from django_graphile_worker.admin import audit, databases, formatting, health
from django_graphile_worker.admin.pages import Page
from django_graphile_worker.models import Worker
from django_graphile_worker.sql.inspection import lock_holders


class UnlockingPage(Page):
    """A page that can force-unlock a worker."""

    def has_unlock_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may(request, "unlock_worker")

    def unlock(self, request: HttpRequest, back: str) -> HttpResponse:
        """Ask what it risks, then free everything that the worker holds."""
        self.require(self.has_unlock_permission(request))
        worker_id = request.POST.get("worker", "").replace("\x00", "")
        alias = databases.alias_of(request)
        with databases.reading(alias) as (cursor, schema):
            held = lock_holders.held_by(cursor, worker_id, schema=schema)
            found = [holder for holder in lock_holders.holders(cursor, schema=schema) if holder.id == worker_id]
        if not held:
            messages.warning(request, _("%(worker)s holds nothing.") % {"worker": worker_id})
            return HttpResponseRedirect(back)
        is_alive = any(health.is_alive(holder) for holder in found)
        if "confirmed" in request.POST and (not is_alive or "anyway" in request.POST):
            return self._unlock(request, worker_id, held, alias, back)
        context = {
            "title": _("Force-unlock"),
            "worker": worker_id,
            "held": [(each.kind, each.name, each.id, formatting.moment(each.since)) for each in held],
            "is_alive": is_alive,
            "silent": formatting.duration(found[0].silent_seconds if found else None),
            "is_registered": any(holder.started_at is not None for holder in found),
            "was_refused": "confirmed" in request.POST,
            "back_url": back,
        }
        return self.render(request, "unlock.html", context)

    def _unlock(
        self, request: HttpRequest, worker_id: str, held: list[lock_holders.Held], alias: str, back: str
    ) -> HttpResponse:
        with databases.writing(alias):
            api.force_unlock_workers([worker_id], using=alias)
            named = ", ".join(f"{each.kind} {each.id}" for each in held)
            audit.note(request, Worker, worker_id, worker_id, _("Force-unlocked: %(held)s.") % {"held": named})
        told = _("Unlocked what %(worker)s held: %(number)s.") % {"worker": worker_id, "number": len(held)}
        messages.success(request, told)
        return HttpResponseRedirect(back)
