"""The former page of recurring tasks, which the page of schedules replaces. Its address leads there."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponsePermanentRedirect

from django_graphile_worker.admin.pages import PageAdmin


class RecurringTaskAdmin(PageAdmin):
    """No page of its own. The model has the permissions to see, run and pause items of the crontab."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return False: the index of the admin has no entry."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        request.current_app = self.admin_site.name
        address = self.url(request, "schedule")
        self.require(bool(address))
        return HttpResponsePermanentRedirect(address)
