"""A site whose users see the jobs of some tasks only."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.urls import path

from django_graphile_worker.admin import JobAdmin, register
from django_graphile_worker.models import Job


class MyJobsAdmin(JobAdmin):
    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).filter(task__identifier__startswith="mine%")


site = AdminSite(name="restricted")
register(site)
site.unregister(Job)
site.register(Job, MyJobsAdmin)

urlpatterns = [path("restricted/", site.urls)]
