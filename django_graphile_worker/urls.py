"""The URLs of the views: ``path("jobs/", include("django_graphile_worker.urls"))``."""

from __future__ import annotations

from django.urls import path

from django_graphile_worker import views

app_name = "graphile_worker"

urlpatterns = [
    path("<int:job_id>.json", views.job_progress, name="job_progress"),
    path("<str:token>.json", views.progress, name="progress"),
    path("<str:token>/", views.progress_page, name="progress_page"),
]
