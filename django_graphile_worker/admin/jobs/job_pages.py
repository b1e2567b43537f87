"""What all pages of jobs have: the permissions to see payloads, and to change jobs."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from django_graphile_worker.admin.pages import PageAdmin


class JobPageAdmin(PageAdmin):
    """The base of the pages of jobs. The permission of an action is the method that the action names."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_app_permission(request, "add_job")

    def has_view_payload_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_app_permission(request, "view_payload")

    def has_reschedule_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_app_permission(request, "reschedule_job")

    def has_complete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_app_permission(request, "complete_job")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_complete_permission(request, obj)

    def has_cancel_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_app_permission(request, "cancel_job")
