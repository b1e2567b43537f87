"""The database that a page shows, and the limits of its statements."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client

from django_graphile_worker.admin import databases
from tests.support import admin_pages as pages
from tests.support.admin_pages import job_url, text
from tests.support.factories import make_job, minutes_ago


@pytest.mark.django_db(databases=["default", "other"])
def test_the_selected_database_is_kept_in_links_and_actions(admin_page: Client) -> None:
    databases.clear_cache()
    try:
        make_job("here")
        there = make_job("there", using="other", run_at=minutes_ago(-60))
        assert "there" not in text(admin_page.get(pages.JOBS))
        listed = admin_page.get(pages.JOBS, {"database": "other"})
        assert "there" in text(listed)
        assert "database=other" in listed.context["cl"].tabs()[1]["url"]
        assert "there #" in text(admin_page.get(job_url(there), {"database": "other"}))
        response = admin_page.post(pages.ACT, {"action": "run_now", "id": there, "database": "other"}, follow=True)
        assert "1 job will run now." in text(response)
        assert "database=other" in response.request["QUERY_STRING"]
    finally:
        databases.clear_cache()


@pytest.mark.django_db(databases=["default", "other"])
def test_a_link_to_another_database__keeps_search_state_and_span(admin_page: Client) -> None:
    databases.clear_cache()
    try:
        jobs = admin_page.get(pages.JOBS, {"q": "task:send mail", "state": "failed"})
        assert "?q=task%3Asend+mail&state=failed&database=other" in [url for _, url, _ in jobs.context["databases"]]
        charts = admin_page.get(pages.OVERVIEW, {"span": "week", "queue": "eu", "database": "other"})
        assert "?span=week&queue=eu&database=default" in [url for _, url, _ in charts.context["databases"]]
    finally:
        databases.clear_cache()


def test_an_unknown_database_is_ignored(admin_page: Client) -> None:
    assert admin_page.get(pages.JOBS, {"database": "nope"}).status_code == 200


def test_reading_restores_the_settings_of_the_session(admin_page: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("show statement_timeout")
        before = cursor.fetchone()
        admin_page.get(pages.JOBS)
        cursor.execute("show statement_timeout")
        assert cursor.fetchone() == before
