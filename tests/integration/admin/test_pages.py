"""What all pages share: they open whatever the tables contain, on any site, and explain errors of the database."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import translation

from django_graphile_worker.admin.page_order import PAGES
from django_graphile_worker.sql.inspection import job_list
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, job_url, text
from tests.support.factories import TOO_DEEP, make_failed_job, make_job
from tests.support.operating import execute


@pytest.mark.parametrize("url", pages.ALL_PAGES)
def test_every_page_opens_without_jobs(admin_page: Client, url: str) -> None:
    assert admin_page.get(url).status_code == 200


@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_every_navigation_has_the_same_names_in_the_same_order(admin_page: Client, language: str) -> None:
    with translation.override(language):
        index = body(admin_page.get("/admin/graphile_worker/"))
        overview = body(admin_page.get(pages.OVERVIEW))
    rows = re.findall(
        r'(?s)<tr class="model-(\w+).*?<a href="[^"]*"[^>]*>([^<]*)</a>', index.split('id="content-main"')[1]
    )
    navigation = overview.split('class="gw-nav"')[1].split("</nav>")[0]
    links = re.findall(r'<a href="/admin/graphile_worker/(\w+)/"[^>]*>([^<]*)</a>', navigation)
    assert [(model, name.strip()) for model, name in rows] == links
    assert [model for model, name in links] == [model._meta.model_name for model in PAGES]
    with translation.override(language):
        for model, name in links:
            assert f"<h1>{name}</h1>" in body(admin_page.get(f"/admin/graphile_worker/{model}/"))


ODD_ROWS: dict[str, tuple[str, Any]] = {
    "infinite run_at": ("run_at = 'infinity'", "never (infinity)"),
    "past beyond all": ("run_at = '-infinity', created_at = '-infinity'", "always (-infinity)"),
    "far year": ("run_at = '200000-01-01'", "never (infinity)"),
    "before Christ": ("created_at = '0044-03-15 BC'", "always (-infinity)"),
    "undecodable number": ("payload = ('[' || repeat('9', 6000) || ']')::json", "Python cannot decode this payload"),
    "too deep": (f"payload = '{TOO_DEEP}'::json", "Python cannot decode this payload"),
    "nul in payload": ('payload = \'{"a": "\\u0000"}\'::json', '"a"'),
    "lone surrogate": ('payload = \'{"a": "\\ud800"}\'::json', '"a"'),
    "scalar payload": ("payload = '42'::json", "42"),
    "null payload": ("payload = 'null'::json", "null"),
    "large payload": ("payload = to_json(repeat('x', 300000))", "too large to be shown whole"),
    "flags that are no object": ("flags = '[1, \"a\"]'::jsonb", "1, a"),
    "no such task": ("task_id = 2000000000", "unknown task"),
    "no such queue": ("job_queue_id = 2000000000", "#"),
    "huge error": ("last_error = repeat('x', 300000), attempts = 3", "xxx"),
    "error without text": ("last_error = '', attempts = 25", "no attempts left (25 of 25)"),
}


@pytest.mark.parametrize("name", ODD_ROWS)
def test_odd_rows_are_shown_and_break_no_page(admin_page: Client, name: str) -> None:
    change, expected = ODD_ROWS[name]
    job_id = make_job("send")
    execute(f"update {{schema}}._private_jobs set {change.replace('%', '%%')} where id = %s", [job_id])
    detail = admin_page.get(job_url(job_id))
    assert detail.status_code == 200
    assert expected in text(detail)
    assert len(detail.content) < 700_000
    for state in ("all", "ready", "scheduled", "running", "retrying", "failed"):
        listed = admin_page.get(pages.JOBS, {"state": state})
        assert listed.status_code == 200
        assert len(listed.content) < 60_000
    for url in pages.ALL_PAGES:
        assert admin_page.get(url).status_code == 200
    assert admin_page.get(pages.ADD, {"from": job_id}).status_code in (200, 404)


def test_pages_work_on_another_admin_site(admin_page: Client, settings: Any) -> None:
    job_id = make_failed_job("send")
    settings.ROOT_URLCONF = "tests.integration.admin.own_site"
    listed = admin_page.get("/office/graphile_worker/job/")
    assert f'href="/office/graphile_worker/job/{job_id}/change/"' in body(listed)
    assert admin_page.get("/office/graphile_worker/overview/").status_code == 200
    response = admin_page.post("/office/graphile_worker/job/act/", {"action": "retry", "id": job_id})
    assert response["Location"].startswith("/office/")


class TestDatabaseErrors:
    def test_a_missing_schema_is_explained_with_the_command(self, admin_page: Client, settings: Any) -> None:
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "SCHEMA": "not_there"}
        response = admin_page.get(pages.JOBS)
        assert response.status_code == 503
        assert "manage.py migrate graphile_worker" in text(response)

    def test_a_query_that_takes_too_long_is_cancelled(
        self, admin_page: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from django_graphile_worker import conf

        hurried = conf.current().replace(admin_statement_timeout=timedelta(milliseconds=200))

        def forever(cursor: Any, *args: Any, **kwargs: Any) -> Any:
            cursor.execute("select pg_sleep(60)")

        monkeypatch.setattr(job_list, "job_ids", forever)
        monkeypatch.setattr("django_graphile_worker.admin.databases.conf.current", lambda: hurried)
        response = admin_page.get(pages.JOBS)
        assert response.status_code == 503
        assert "The query took too long" in text(response)
