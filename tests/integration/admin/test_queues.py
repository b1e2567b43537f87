"""The queues page."""

from __future__ import annotations

from typing import Any

from django.test import Client

from tests.support import admin_pages as pages
from tests.support.admin_pages import text
from tests.support.factories import make_job, make_queue, minutes_ago


def test_shows_depth_worker_and_running_job(admin_page: Client) -> None:
    running = make_job("charge", queue_name="eu", locked_by="worker-1", locked_at=minutes_ago(2))
    make_queue("eu", locked_by="worker-1", locked_at=minutes_ago(2))
    for _ in range(3):
        make_job("send", queue_name="eu", run_at=minutes_ago(30))
    make_queue("us")
    shown = text(admin_page.get(pages.QUEUES))
    assert "eu 3 30 min" in shown
    assert "worker-1 2 min" in shown
    assert f"charge #{running}" in shown
    assert "us 0" in shown
    assert "us 0" not in text(admin_page.get(pages.QUEUES, {"held": "1"}))
    assert "eu 3" not in text(admin_page.get(pages.QUEUES, {"q": "US"}))


def test_pages_by_name(admin_page: Client) -> None:
    for number in range(60):
        make_queue(f"queue {number:02}")
    first = admin_page.get(pages.QUEUES)
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
