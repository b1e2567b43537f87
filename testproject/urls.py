from __future__ import annotations

from django.contrib import admin
from django.urls import path

from testproject.shop import views

urlpatterns = [
    path("", views.index, name="index"),
    path("order/", views.order, name="order"),
    path("admin/", admin.site.urls),
]
