"""Force-unlocking a worker."""

from __future__ import annotations

import pytest
from django.test import Client

from django_graphile_worker import models
from django_graphile_worker.models import Job
from tests.support import admin_pages as pages
from tests.support.admin_pages import log_entries, make_worker, messages, text
from tests.support.factories import make_job, make_queue


@pytest.mark.parametrize("base", [pages.WORKERS, pages.QUEUES])
def test_releases_the_locks_of_a_dead_worker(admin_page: Client, base: str) -> None:
    make_worker("django-worker-1", silent=600)
    job_id = make_job("send", queue_name="eu", locked_by="django-worker-1")
    make_queue("eu", locked_by="django-worker-1")
    asked = admin_page.post(base + "unlock/", {"worker": "django-worker-1"})
    assert "has sent no heartbeat for 10 min" in text(asked)
    assert f"Job send #{job_id}" in text(asked)
    assert asked.context["title"] == "Force-unlock django-worker-1?"
    assert f'<a href="{pages.WORKERS}">Workers</a> &rsaquo; Force-unlock' in pages.body(asked)
    assert f'<a href="{pages.job_url(job_id)}"><bdi>send #{job_id}</bdi></a>' in pages.body(asked)
    assert f'<a href="{pages.JOBS}?q=queue%3Aeu"><bdi>eu</bdi></a>' in pages.body(asked)
    assert Job.objects.get().locked_by == "django-worker-1"
    response = admin_page.post(base + "unlock/", {"worker": "django-worker-1", "confirmed": "1"}, follow=True)
    assert messages(response) == ["Force-unlocked django-worker-1. Jobs and queues released: 2."]
    assert Job.objects.get().locked_by is None
    assert models.JobQueue.objects.get().locked_by is None
    ((name, message),) = log_entries()
    assert name == "django-worker-1"
    assert f"job {job_id}" in message


def test_a_live_worker_needs_a_second_consent(admin_page: Client) -> None:
    make_worker("django-worker-1", silent=2)
    make_job("send", locked_by="django-worker-1")
    fields = {"worker": "django-worker-1", "confirmed": "1"}
    refused = admin_page.post(pages.WORKERS + "unlock/", fields)
    assert "is alive" in text(refused)
    assert "Nothing was unlocked. The worker is alive: to unlock it anyway, tick the box." in text(refused)
    first = admin_page.post(pages.WORKERS + "unlock/", {"worker": "django-worker-1"})
    assert "tick the box" not in text(first)
    assert Job.objects.get().locked_by == "django-worker-1"
    admin_page.post(pages.WORKERS + "unlock/", {**fields, "anyway": "1"})
    assert Job.objects.get().locked_by is None
