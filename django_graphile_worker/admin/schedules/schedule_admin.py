"""The admin of schedules: all its pages in one class."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from django_graphile_worker.admin.schedules.actions_view import ScheduleActionsAdmin
from django_graphile_worker.admin.schedules.editing.check_view import ScheduleCheckAdmin
from django_graphile_worker.admin.schedules.editing.history_view import ScheduleHistoryAdmin


class ScheduleAdmin(ScheduleActionsAdmin, ScheduleCheckAdmin, ScheduleHistoryAdmin):
    """The admin of schedules. A subclass whose `get_queryset` returns fewer schedules restricts pages and actions."""

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        act = self.admin_site.admin_view(self.act_view)
        check = self.admin_site.admin_view(self.check_view)
        own = [
            path("act/", act, name="graphile_worker_schedule_act"),
            path("check/", check, name="graphile_worker_schedule_check"),
        ]
        return [*own, *super().get_urls()]
