"""The answers to the refreshes of open pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_graphile_worker.admin.refreshed_regions import HEADER
from django_graphile_worker.registry import tasks
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, make_worker
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute
from tests.support.schedule_forms import make_schedule


def refresh(client: Client, url: str, response: Any = None) -> Any:
    """Refresh a page that shows what a response had."""
    known = [] if response is None else re.findall('data-hash="([^"]*)"', body(response))
    return client.get(url, headers={HEADER: " ".join(known) or "none"})


@pytest.fixture
def without_minutely() -> Iterator[None]:
    """Have no task whose next times change each minute."""
    with tasks.isolated():
        tasks._tasks.pop("count_orders")
        yield


@pytest.mark.parametrize("url", [pages.QUEUES, pages.LIMITS, pages.SCHEDULES, pages.ERRORS, pages.JOBS])
def test_unchanged_page__sends_nothing(admin_page: Client, url: str, without_minutely: None) -> None:
    make_schedule(task="ask_for_review", cron="0 0 1 1 *")
    make_failed_job("send", created_at=minutes_ago(10**6), updated_at=minutes_ago(10**6), queue_name="eu")
    first = refresh(admin_page, url)
    assert first.status_code == 200
    assert first.headers[HEADER] == "1"
    assert "<html" not in body(first)
    second = refresh(admin_page, url, first)
    # Relative times alone are sent again.
    if second.status_code != 204:
        assert set(re.findall("data-[a-z]+", body(second))) == {"data-refresh", "data-same"}
        assert len(body(second)) < 300


def test_list__sends_the_row_that_changed_and_the_action_bar(admin_page: Client) -> None:
    url = f"{pages.JOBS}?state=scheduled"
    empty = refresh(admin_page, url)
    assert "gw-actions" not in body(empty)
    ids = [make_job("send", run_at=minutes_ago(-(10**6)), created_at=minutes_ago(10**6)) for _ in range(50)]
    filled = refresh(admin_page, url, empty)
    assert "Select all 50 that match" in body(filled)
    execute("update {schema}._private_jobs set priority = 77 where id = %s", [ids[7]])
    changed = refresh(admin_page, url, filled)
    whole = admin_page.get(url)
    assert re.findall('<tr data-key="([^"]*)" data-hash', body(changed)) == [str(ids[7])]
    assert body(changed).count("data-same") == 49
    assert len(body(changed)) < len(body(whole)) / 5


def test_worker_page__has_a_part_for_each_worker(admin_page: Client) -> None:
    make_worker("django-worker-1")
    assert 'data-key="django-worker-1"' in body(refresh(admin_page, pages.WORKERS))


def test_ended_session__is_redirected(admin_page: Client, db: None) -> None:
    admin_page.logout()
    assert refresh(admin_page, pages.JOBS).status_code == 302
    client = Client()
    client.force_login(User.objects.create_user("nobody", is_staff=True))
    assert refresh(client, pages.JOBS).status_code == 403
