"""The figures that the refreshes of open pages share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.utils import translation

from django_graphile_worker.admin import databases
from django_graphile_worker.admin.overview import figures
from django_graphile_worker.admin.refreshed_regions import HEADER
from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import StatementRecorder, body
from tests.support.factories import make_failed_job, make_job, minutes_ago

TASK = {"task": "send"}


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # A slow machine may take longer to log in a second user.
    monkeypatch.setattr(figures, "CACHE_SECONDS", 60.0)
    cache.clear()
    yield
    cache.clear()


def refresh(client: Client, url: str = pages.OVERVIEW, query: Any = None) -> Any:
    return client.get(url, query or {}, headers={HEADER: "none"})


def ready(response: Any) -> str:
    return str(next(tile.value for tile in response.context["tiles"] if tile.label == "Ready"))


def statements(client: Client, query: Any = None) -> list[str]:
    """Return the statements about jobs that a refresh sends."""
    recorder = StatementRecorder()
    with connection.execute_wrapper(recorder):
        assert refresh(client, query=query).status_code in (200, 204)
    return [each for each in recorder.statements if "_private_jobs" in each or "_private_statistics" in each]


@pytest.mark.parametrize("query", [{}, TASK])
def test_refreshes__read_once_for_all(admin_page: Client, client_with: MakeClient, query: dict[str, str]) -> None:
    make_job("send", run_at=minutes_ago(1))
    assert statements(admin_page, query)
    assert [statements(client, query) for client in (admin_page, client_with(), client_with())] == [[], [], []]
    cache.clear()
    assert statements(admin_page, query)


def test_page_that_is_opened__reads_itself_and_tells_the_others(admin_page: Client) -> None:
    """After an action, a page must show what the action has done."""
    make_job("send", run_at=minutes_ago(1))
    assert ready(refresh(admin_page)) == "1"
    make_job("send", run_at=minutes_ago(1))
    assert ready(refresh(admin_page)) == "1"
    assert ready(admin_page.get(pages.OVERVIEW)) == "2"
    assert ready(refresh(admin_page)) == "2"


@pytest.mark.parametrize("query", [{"span": "day"}, {"queue": "eu"}, {"tasks": "se"}, {"page": "2"}, TASK])
def test_other_figures__are_read(admin_page: Client, query: dict[str, str]) -> None:
    make_job("send", run_at=minutes_ago(1))
    refresh(admin_page)
    assert statements(admin_page, query)


@pytest.mark.django_db(databases=["default", "other"])
def test_other_databases__have_their_own(admin_page: Client) -> None:
    databases.clear_cache()
    try:
        make_job("send", run_at=minutes_ago(1))
        assert ready(refresh(admin_page)) == "1"
        assert ready(refresh(admin_page, query={"database": "other"})) == "0"
        assert ready(refresh(admin_page)) == "1"
    finally:
        databases.clear_cache()


def test_user_who_may_see_some_jobs__gets_no_shared_figures(admin_page: Client, settings: Any) -> None:
    make_job("secret_task", queue_name="secret_queue", run_at=minutes_ago(1))
    assert "secret_task" in body(refresh(admin_page))
    refresh(admin_page, query={"task": "secret_task"})
    settings.ROOT_URLCONF = "tests.integration.admin.restricted_site"
    for query in ({}, {"task": "secret_task"}):
        page = refresh(admin_page, "/restricted/graphile_worker/overview/", query)
        assert "secret" not in body(page).replace("task=secret_task", "")
        assert "Ready" not in body(page)


def test_permissions__are_those_of_each_user(admin_page: Client, client_with: MakeClient) -> None:
    make_failed_job("send", error="ValueError: password=hunter2")
    assert "hunter2" in body(refresh(admin_page, query=TASK))
    reader = body(refresh(client_with(), query=TASK))
    assert "ValueError" in reader
    assert "hunter2" not in reader
    assert "ValueError" not in body(refresh(client_with(views=("view_overview",)), query=TASK))


def test_language__is_that_of_each_user(admin_page: Client) -> None:
    make_failed_job("send")
    assert "Oldest ready job" in body(refresh(admin_page))
    with translation.override("de"):
        german = body(refresh(admin_page))
    assert "Oldest ready job" not in german
    assert "Bereit" in german


def test_cache_that_fails__is_done_without(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise ConnectionError

    monkeypatch.setattr(figures, "cache", Broken())
    make_job("send", run_at=minutes_ago(1))
    assert ready(refresh(admin_page)) == "1"
