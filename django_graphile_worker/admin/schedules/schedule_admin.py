"""The admin of schedules: all its pages in one class."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from django_graphile_worker.admin.schedules.actions_view import ScheduleActionsAdmin


class ScheduleAdmin(ScheduleActionsAdmin):
    """The admin of schedules."""

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        act = self.admin_site.admin_view(self.act_view)
        return [path("act/", act, name="graphile_worker_schedule_act"), *super().get_urls()]
