"""The queue in Django's admin. The default site has it; `register(site)` adds it to another one."""

from __future__ import annotations

from django.contrib import admin

from django_graphile_worker import models
from django_graphile_worker.admin.errors import ErrorGroupAdmin
from django_graphile_worker.admin.jobs import JobAdmin
from django_graphile_worker.admin.overview import OverviewAdmin
from django_graphile_worker.admin.queues import JobQueueAdmin
from django_graphile_worker.admin.recurring import RecurringTaskAdmin
from django_graphile_worker.admin.workers import WorkerAdmin

__all__ = [
    "ErrorGroupAdmin",
    "JobAdmin",
    "JobQueueAdmin",
    "OverviewAdmin",
    "RecurringTaskAdmin",
    "WorkerAdmin",
    "register",
]

PAGES = {
    models.Overview: OverviewAdmin,
    models.Job: JobAdmin,
    models.JobQueue: JobQueueAdmin,
    models.RecurringTask: RecurringTaskAdmin,
    models.Worker: WorkerAdmin,
    models.ErrorGroup: ErrorGroupAdmin,
}


def register(site: admin.AdminSite) -> None:
    """Add the queue's pages to a site."""
    for model, page in PAGES.items():
        site.register(model, page)


register(admin.site)
