"""The admin of jobs: all its pages in one class."""

from __future__ import annotations

from typing import Any

from django.db import connections, transaction
from django.urls import URLPattern, URLResolver, path

from django_graphile_worker.admin.jobs.actions_view import JobActionsAdmin
from django_graphile_worker.admin.jobs.adding.add_view import JobAddAdmin
from django_graphile_worker.admin.jobs.detail.edit_view import JobEditAdmin
from django_graphile_worker.admin.jobs.job_list.export_view import JobExportAdmin
from django_graphile_worker.admin.jobs.job_list.saved_views_view import JobSavedViewsAdmin
from django_graphile_worker.admin.jobs.undo_view import JobUndoAdmin


class JobAdmin(JobActionsAdmin, JobUndoAdmin, JobEditAdmin, JobAddAdmin, JobExportAdmin, JobSavedViewsAdmin):
    """The admin of jobs. A subclass whose `get_queryset` returns fewer jobs restricts every page and every action."""

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        act: Any = self.admin_site.admin_view(self.act_view)
        undo: Any = self.admin_site.admin_view(self.undo_view)
        # An action on many jobs commits after each step, also on a site with ATOMIC_REQUESTS.
        for alias in connections:
            act = transaction.non_atomic_requests(using=alias)(act)
            undo = transaction.non_atomic_requests(using=alias)(undo)
        edit = self.admin_site.admin_view(self.edit_view)
        payload = self.admin_site.admin_view(self.payload_view)
        export = self.admin_site.admin_view(self.export_view)
        views = self.admin_site.admin_view(self.views_view)
        complete = self.admin_site.admin_view(self.complete_view)
        own = [
            path("complete/", complete, name="graphile_worker_job_complete"),
            path("act/", act, name="graphile_worker_job_act"),
            path("export/", export, name="graphile_worker_job_export"),
            path("views/", views, name="graphile_worker_job_views"),
            path("undo/<uuid:action_id>/", undo, name="graphile_worker_job_undo"),
            path("<path:object_id>/edit/", edit, name="graphile_worker_job_edit"),
            path("<path:object_id>/payload/", payload, name="graphile_worker_job_payload"),
        ]
        return [*own, *super().get_urls()]
