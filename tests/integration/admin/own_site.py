"""A site with an admin of its own, under another name."""

from __future__ import annotations

from django.contrib.admin import AdminSite
from django.urls import path

from django_graphile_worker.admin import register

office = AdminSite(name="office")
register(office)

urlpatterns = [path("office/", office.urls)]
