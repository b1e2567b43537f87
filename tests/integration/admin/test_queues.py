"""The queues page."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client

from django_graphile_worker.sql.inspection import queue_depths
from tests.support import admin_pages as pages
from tests.support.admin_pages import text
from tests.support.factories import make_job, make_queue, minutes_ago
from tests.support.limits import make_key, park_job

SCHEMA = settings.GRAPHILE_WORKER["SCHEMA"]


def test_shows_depth_worker_and_running_job(admin_page: Client) -> None:
    running = make_job("charge", queue_name="eu", locked_by="worker-1", locked_at=minutes_ago(2))
    make_queue("eu", locked_by="worker-1", locked_at=minutes_ago(2))
    for _ in range(3):
        make_job("send", queue_name="eu", run_at=minutes_ago(30))
    make_queue("us")
    shown = text(admin_page.get(pages.QUEUES))
    assert "eu 3 30 min" in shown
    assert "worker-1 2 min" in shown
    assert f"1 / 1 charge #{running}" in shown
    assert "us 0" not in shown
    assert "1 empty queue is not shown. Show all queues" in shown
    every = text(admin_page.get(pages.QUEUES, {"show": "all"}))
    assert "us 0" in every
    assert "0 / 1" in every
    assert "us 0" not in text(admin_page.get(pages.QUEUES, {"held": "1"}))
    assert "eu 3" not in text(admin_page.get(pages.QUEUES, {"q": "US"}))


@pytest.mark.parametrize("most", [7, 100])
def test_oldest_job__is_that_of_any_task_and_priority(db: None, most: int) -> None:
    for number, minutes in enumerate((10, 20, 50, 40, 30)):
        make_job(f"task {number % 2}", queue_name="eu", priority=number % 3, run_at=minutes_ago(minutes))
    for _ in range(10):
        make_job("task 0", queue_name="eu", run_at=minutes_ago(5))
    assert _oldest("eu", most=most) == pytest.approx(50 * 60, abs=30)
    assert _oldest("us", most=most) is None
    make_job("task 0", queue_name="eu", run_at="-infinity")
    assert (_oldest("eu", most=most) or 0) > 1000 * 365 * 86400


def test_oldest_job__may_wait_for_a_limit(db: None) -> None:
    make_job("other", queue_name="eu", run_at=minutes_ago(10))
    park_job(make_key("mail", "eu"), "limited", queue_name="eu", run_at=minutes_ago(90))
    assert _oldest("eu", most=100) == pytest.approx(90 * 60, abs=30)


def _oldest(queue_name: str, *, most: int) -> float | None:
    make_queue("us")
    with connection.cursor() as cursor:
        (queue,) = queue_depths.held_first(cursor, schema=SCHEMA, limit=1, name=queue_name, most=most)
    return queue.oldest_seconds


def test_pages_by_name(admin_page: Client) -> None:
    for number in range(60):
        make_queue(f"queue {number:02}")
    first = admin_page.get(pages.QUEUES, {"show": "all"})
    assert "queue 49" in text(first)
    assert "queue 50" not in text(first)
    second = admin_page.get(first.context["next_url"])
    assert "queue 50" in text(second)
    assert "queue 49" not in text(second)
    assert second.context["next_url"] == ""


def test_previous_pages_are_the_pages_before(admin_page: Client) -> None:
    for number in range(130):
        make_queue(f"queue {number:03}")
    make_queue("another")

    def names(page: Any) -> list[str]:
        return [queue["name"] for queue in page.context["queues"]]

    there = [admin_page.get(pages.QUEUES, {"q": "Queue"})]
    while url := there[-1].context["next_url"]:
        there.append(admin_page.get(url))
    assert [len(names(page)) for page in there] == [50, 50, 30]
    back = [there[-1]]
    while url := back[-1].context["previous_url"]:
        assert url in pages.body(back[-1]).replace("&amp;", "&")
        back.append(admin_page.get(url))
    assert [names(page) for page in back] == [names(page) for page in reversed(there)]
    assert names(admin_page.get(pages.QUEUES, {"before": "queue 003"}))[0] == "another", "a whole first page"


def test_an_empty_page_links_to_the_previous_page(admin_page: Client) -> None:
    make_queue("eu")
    page = admin_page.get(pages.QUEUES, {"after": "zz"})
    assert "No queues." in text(page)
    assert "eu" in text(admin_page.get(page.context["previous_url"]))


def test_queues_with_a_problem_or_a_backlog_come_first(admin_page: Client) -> None:
    for number in range(60):
        make_queue(f"idle {number:02}")
    make_job("send", queue_name="a little")
    for _ in range(3):
        make_job("send", queue_name="more")
    pages.make_worker("django-worker-alive", host="web-1")
    pages.make_worker("django-worker-lost", silent=300, host="web-2")
    for name, worker_id in (
        ("held", "django-worker-alive"),
        ("silent", "django-worker-lost"),
        ("gone", "django-worker-x"),
    ):
        make_queue(name, locked_by=worker_id, locked_at=minutes_ago(2))
    page = admin_page.get(pages.QUEUES)
    names = [queue["name"] for queue in page.context["queues"]]
    assert names == ["silent", "gone", "more", "a little", "held"]
    assert [queue["is_lost"] for queue in page.context["queues"]] == [True, True, False, False, False]
    assert text(page).count("worker lost") == 2
    assert "60 empty queues are not shown." in text(page)
    assert 'href="/admin/graphile_worker/worker/#gw-worker-django-worker-alive"' in pages.body(page)
    assert 'href="/admin/graphile_worker/event/?worker=django-worker-lost"' in pages.body(page)
    overview = pages.body(admin_page.get(pages.OVERVIEW))
    assert overview.count("gw-worker-dead") == 2
    assert 'id="gw-worker-django-worker-alive"' in pages.body(admin_page.get(pages.WORKERS))


def test_active_queues_have_pages(admin_page: Client) -> None:
    for number in range(60):
        make_job("send", queue_name=f"queue {number:02}")
    first = admin_page.get(pages.QUEUES)
    second = admin_page.get(first.context["next_url"])
    names = [queue["name"] for page in (first, second) for queue in page.context["queues"]]
    assert names == [f"queue {number:02}" for number in range(60)]
    assert (second.context["next_url"], second.context["previous_url"]) == ("", pages.QUEUES + "?page=1")
    for odd in ("0", "x", "99999999", "9999"):
        assert admin_page.get(pages.QUEUES, {"page": odd}).status_code == 200
