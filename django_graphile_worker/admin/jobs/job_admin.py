"""The admin of jobs: all its pages in one class."""

from __future__ import annotations

from typing import Any

from django.db import connections, transaction
from django.urls import URLPattern, URLResolver, path
from django.utils.translation import gettext_lazy

from django_graphile_worker.admin.jobs.actions_view import JobActionsAdmin
from django_graphile_worker.admin.jobs.add_view import JobAddAdmin


class JobAdmin(JobActionsAdmin, JobAddAdmin):
    """The admin of jobs. A subclass whose `get_queryset` returns fewer jobs restricts every page and every action."""

    page_title = gettext_lazy("Jobs")

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        act: Any = self.admin_site.admin_view(self.act_view)
        # An action on many jobs commits after each step, also on a site with ATOMIC_REQUESTS.
        for alias in connections:
            act = transaction.non_atomic_requests(using=alias)(act)
        payload = self.admin_site.admin_view(self.payload_view)
        complete = self.admin_site.admin_view(self.complete_view)
        own = [
            path("complete/", complete, name="graphile_worker_job_complete"),
            path("act/", act, name="graphile_worker_job_act"),
            path("<path:object_id>/payload/", payload, name="graphile_worker_job_payload"),
        ]
        return [*own, *super().get_urls()]
