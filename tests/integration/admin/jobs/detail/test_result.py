"""The progress and the result of a job on the pages of the admin."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, text
from tests.support.factories import make_job
from tests.support.results import FAILED, store_result
from tests.support.rows import in_quotes

ATTEMPT = {
    "worker_id": "django-worker-1",
    "started_at": 1.0,
    "ended_at": 3.5,
    "exception_class": "shop.Broken",
    "traceback": "shop.Broken: token=hunter2\n\nTraceback (most recent call last):\nshop.Broken",
}


@pytest.fixture
def running(db: None, worker_schema: str) -> int:
    job_id = make_job("export", locked_by="django-worker-1/1", attempts=1)
    with connection.cursor() as cursor:
        cursor.execute(
            f"insert into {in_quotes(worker_schema)}._private_progress values (%s, 1, 3, 7, %s, now())",
            [job_id, "<i>page</i> 3 password=hunter2"],
        )
    return job_id


@pytest.fixture
def ended(db: None, worker_schema: str) -> int:
    with connection.cursor() as cursor:
        value = {"rows": 12, "api_key": "hunter2"}
        store_result(cursor, 4711, worker_schema, task="export", value=value, attempts=[ATTEMPT])
    return 4711


def test_running_job__has_a_bar_on_its_page_and_in_the_list(admin_page: Client, running: int) -> None:
    for url in (pages.job_url(running), pages.JOBS):
        response = admin_page.get(url)
        assert 'value="42"' in body(response)
        assert "42 % 3 of 7 <i>page</i> 3" in text(response)
        assert "<i>page" not in body(response)


def test_message__is_redacted_for_users_without_the_permission(client_with: MakeClient, running: int) -> None:
    for url in (pages.job_url(running), pages.JOBS):
        shown = body(client_with().get(url))
        assert "42 %" in shown
        assert "hunter2" not in shown


def test_job_that_has_gone__shows_its_result(admin_page: Client, ended: int) -> None:
    response = admin_page.get(pages.job_url(ended))
    shown = text(response)
    assert response.status_code == 200
    assert "export #4711" in shown
    assert "Result Succeeded" in shown
    assert '"rows" 12' in shown
    assert "shop.Broken: token=hunter2" in shown
    assert "2.5 s" in shown


def test_result__is_hidden_from_users_without_the_permission(client_with: MakeClient, ended: int) -> None:
    shown = text(client_with().get(pages.job_url(ended)))
    assert "Result Succeeded" in shown
    assert "hunter2" not in shown
    assert "api_key" not in shown


def test_result_of_a_job_that_has_gone__is_hidden_from_users_who_see_some_jobs(
    admin_page: Client, ended: int, settings: Any
) -> None:
    settings.ROOT_URLCONF = "tests.integration.admin.restricted_site"
    response = admin_page.get(reverse("restricted:graphile_worker_job_change", args=[ended]))
    assert response.status_code == 404
    assert "12" not in text(response)


def test_failed_attempts__are_listed_on_the_page_of_a_job_that_is_tried_again(
    admin_page: Client, worker_schema: str
) -> None:
    job_id = make_job("export", attempts=1)
    with connection.cursor() as cursor:
        store_result(cursor, job_id, worker_schema, status=FAILED, attempts=[ATTEMPT])
    response = admin_page.get(pages.job_url(job_id))
    assert "Result Waiting" in text(response)
    assert "django-worker-1" in text(response)
