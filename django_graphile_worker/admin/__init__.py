"""Pages of Django's admin. They are registered on the default site; ``register(site)`` adds them to another site.

Start reading with ``pages`` (the base class of every page), then ``overview`` and ``jobs/``. A page is a
``ModelAdmin`` of an unmanaged model whose ``changelist_view`` opens a transaction with ``databases.reading``, reads
through ``sql.inspection``, and renders a template of templates/admin/graphile_worker/. ``databases`` finds the database
that the user has selected, ``visible_jobs`` finds the jobs that the user may see, ``search`` parses the search box,
``formatting`` formats values, and ``audit`` writes the admin's log.

The package may import ``api``, ``models``, ``sql`` and the layers below them, but not ``management``. Of ``worker`` it
imports only what converts payloads, for the form of schedules. Nothing outside this package imports it.

To add a page, write a proxy model in ``models.pages``, for the permission to view the page, and a subclass of
``PageAdmin``. Register both in ``PAGES`` below, and give the page its place in ``page_order``.
"""

from __future__ import annotations

from django.contrib import admin

from django_graphile_worker import models
from django_graphile_worker.admin.errors import ErrorGroupAdmin
from django_graphile_worker.admin.events import EventAdmin
from django_graphile_worker.admin.history import PastAttemptAdmin
from django_graphile_worker.admin.jobs import JobAdmin
from django_graphile_worker.admin.limits import LimitKeyAdmin
from django_graphile_worker.admin.overview.page import OverviewAdmin
from django_graphile_worker.admin.pauses import PausedWorkAdmin
from django_graphile_worker.admin.queues import JobQueueAdmin
from django_graphile_worker.admin.schedules.schedule_admin import ScheduleAdmin
from django_graphile_worker.admin.workers import WorkerAdmin

__all__ = [
    "ErrorGroupAdmin",
    "EventAdmin",
    "JobAdmin",
    "JobQueueAdmin",
    "LimitKeyAdmin",
    "OverviewAdmin",
    "PastAttemptAdmin",
    "PausedWorkAdmin",
    "ScheduleAdmin",
    "WorkerAdmin",
    "register",
]

PAGES = {
    models.Overview: OverviewAdmin,
    models.Job: JobAdmin,
    models.JobQueue: JobQueueAdmin,
    models.PausedWork: PausedWorkAdmin,
    models.LimitKey: LimitKeyAdmin,
    models.Schedule: ScheduleAdmin,
    models.Worker: WorkerAdmin,
    models.Event: EventAdmin,
    models.ErrorGroup: ErrorGroupAdmin,
    models.PastAttempt: PastAttemptAdmin,
}


def register(site: admin.AdminSite) -> None:
    """Add the pages to a site."""
    for model, page in PAGES.items():
        site.register(model, page)


register(admin.site)
