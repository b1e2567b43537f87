from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from testproject.shop import views

urlpatterns = [
    path("", views.index, name="index"),
    path("order/", views.order, name="order"),
    path("jobs/", include("django_graphile_worker.urls")),
    path("admin/", admin.site.urls),
]
