"""The pages of the history."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from django_graphile_worker.sql.inspection import past_attempts
from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, text
from tests.support.factories import make_job, minutes_ago
from tests.support.history import make_attempt

PAYLOAD = {"order": 4711, "secret": "swordfish"}


@pytest.fixture
def attempts(db: None, settings: Any, worker_schema: str) -> datetime:
    """Make three attempts; return when the first ended, two days ago."""
    two_days_ago = minutes_ago(60 * 48)
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "HISTORY": 86_400 * 30}
    error = "ValueError: token=hunter2\n\nTraceback (most recent call last):\nValueError: token=hunter2"
    with connection.cursor() as cursor:
        make_attempt(cursor, worker_schema, 7, outcome=2, error=error, ended_at=minutes_ago(3), job_key="order-7")
        make_attempt(cursor, worker_schema, 7, attempt=2, payload=PAYLOAD, queue_name="eu")
        make_attempt(
            cursor,
            worker_schema,
            8,
            task_identifier="<b>ship</b>",
            outcome=3,
            job_key="report:5",
            ended_at=two_days_ago,
        )
    return two_days_ago


def rows(client: Client, **query: str) -> list[tuple[int, int]]:
    return [(row["job_id"], row["attempt"]) for row in client.get(pages.HISTORY, query).context["rows"]]


def test_list__shows_attempts_newest_first(admin_page: Client, attempts: datetime) -> None:
    response = admin_page.get(pages.HISTORY)
    assert [(row["job_id"], row["attempt"]) for row in response.context["rows"]] == [(7, 2), (7, 1), (8, 1)]
    assert "Retried" in text(response)
    assert "Failed" in text(response)
    assert "<b>ship</b>" not in body(response)
    assert "No history is kept" not in text(response)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("order-7", [(7, 1)]),
        ("key:order-7", [(7, 1)]),
        ("report:5", [(8, 1)]),
        ("key:report:5", [(8, 1)]),
        ("id:8", [(8, 1)]),
        ("7", [(7, 2), (7, 1)]),
        ("4711", [(7, 2)]),
        ("payload:4711 queue:eu", [(7, 2)]),
        ("task:task outcome:succeeded", [(7, 2)]),
        ('task:"<b>ship</b>"', [(8, 1)]),
        ("error:hunter2", [(7, 1)]),
        ("worker:django-worker-1 ended:2h", [(7, 2), (7, 1)]),
    ],
)
def test_search__finds_what_was_asked(
    admin_page: Client, attempts: datetime, query: str, expected: list[tuple[int, int]]
) -> None:
    assert rows(admin_page, q=query) == expected


def test_day__limits_the_search(admin_page: Client, attempts: datetime) -> None:
    day = attempts.date().isoformat()
    assert rows(admin_page, day=day) == [(8, 1)]
    assert rows(admin_page, day=day, q="7") == []
    assert len(rows(admin_page, day="2026-99-99")) == 3


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("outcom:red", "The conditions are id:, key:, task:"),
        ("outcome:blue", "The outcomes are succeeded, failed"),
        ("id:x", "This is no id of a job."),
        ("ended:never", "Write a time like 2h"),
        ('task:""', "A value is missing."),
    ],
)
def test_errors__say_what_to_write(admin_page: Client, attempts: datetime, query: str, message: str) -> None:
    response = admin_page.get(pages.HISTORY, {"q": query})
    (error,) = response.context["mistakes"]
    assert error.startswith(f"{query}: {message}")


def test_pages__are_linked(admin_page: Client, attempts: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_graphile_worker.admin.history.PAGE_SIZE", 2)
    response = admin_page.get(pages.HISTORY)
    following = admin_page.get(response.context["next_url"])
    assert [row["job_id"] for row in following.context["rows"]] == [8]
    assert following.context["next_url"] == ""
    assert following.context["first_url"]


def test_search_of_the_current_day__says_where_it_stopped(
    admin_page: Client, attempts: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_attempts, "MAX_EXAMINED", 2)
    assert "the newest 2 attempts were searched" in text(admin_page.get(pages.HISTORY, {"q": "task:nothing"}))


def test_page_of_a_job__shows_its_attempts_with_errors_and_payloads(admin_page: Client, attempts: datetime) -> None:
    response = admin_page.get(f"{pages.HISTORY}7/change/")
    shown = text(response)
    assert "History of job 7" in shown
    assert "Attempt 2 Succeeded" in shown
    assert "ValueError: token=hunter2" in shown
    assert '"order" 4711' in shown
    assert admin_page.get(f"{pages.HISTORY}99/change/").status_code == 404
    assert admin_page.get(f"{pages.HISTORY}x/change/").status_code == 404


def test_secrets__are_hidden_from_users_without_the_permission(client_with: MakeClient, attempts: datetime) -> None:
    client = client_with()
    for url in (pages.HISTORY, f"{pages.HISTORY}7/change/"):
        response = client.get(url)
        assert response.status_code == 200
        assert "hunter2" not in body(response)
        assert "swordfish" not in body(response)
        assert '"order"' not in text(response), "a payload is hidden whole"
    for query in ("error:hunter2", "payload:4711"):
        assert "You may not see" in text(client.get(pages.HISTORY, {"q": query}))
    words = {"q": "4711"}
    assert client.get(pages.HISTORY, words).context["rows"] == [], "words of payloads are not searched"
    assert client_with("view_payload").get(pages.HISTORY, words).context["rows"]


def test_permission__is_needed(client_with: MakeClient, attempts: datetime) -> None:
    client = client_with(views=("view_job",))
    for url in (pages.HISTORY, f"{pages.HISTORY}7/change/"):
        assert client.get(url).status_code == 403


def test_users_who_see_some_jobs__see_no_history(attempts: datetime, settings: Any, admin_page: Client) -> None:
    settings.ROOT_URLCONF = "tests.integration.admin.restricted_site"
    address = reverse("restricted:graphile_worker_pastattempt_changelist")
    response = admin_page.get(address)
    assert response.context["rows"] == []
    assert "shown only to users who may see all jobs" in text(response)
    assert admin_page.get(f"{address}7/change/").status_code == 403


def test_history_that_is_off__is_explained(admin_page: Client) -> None:
    assert "No history is kept" in text(admin_page.get(pages.HISTORY))


def test_page_of_a_job__links_to_its_history(admin_page: Client, attempts: datetime) -> None:
    assert f"{pages.HISTORY}7/change/" in body(admin_page.get(pages.job_url(7))), "also after the job has gone"
    job_id = make_job()
    assert f"{pages.HISTORY}{job_id}/change/" in body(admin_page.get(pages.job_url(job_id)))
