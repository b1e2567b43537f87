"""Jobs: the list, a job, what can be done with them, and adding one."""

from __future__ import annotations

from typing import Any

from django.db import connections, transaction
from django.urls import URLPattern, URLResolver, path
from django.utils.translation import gettext_lazy

from django_graphile_worker.admin.jobs.actions_view import ActingPage
from django_graphile_worker.admin.jobs.add_view import AddingPage

__all__ = ["JobAdmin"]


class JobAdmin(ActingPage, AddingPage):
    """All about jobs. A subclass whose `get_queryset` shows less restricts every page and action here."""

    page_title = gettext_lazy("Jobs")

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        act: Any = self.admin_site.admin_view(self.act_view)
        # What is done to very many jobs is committed step by step, also on a site that has ATOMIC_REQUESTS.
        for alias in connections:
            act = transaction.non_atomic_requests(using=alias)(act)
        payload = self.admin_site.admin_view(self.payload_view)
        own = [
            path("act/", act, name="graphile_worker_job_act"),
            path("<path:object_id>/payload/", payload, name="graphile_worker_job_payload"),
        ]
        return [*own, *super().get_urls()]
