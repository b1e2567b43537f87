"""Events in Chromium: the page, its refresh, and the alarms of the overview."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from playwright.sync_api import expect

from django_graphile_worker.sql import events
from django_graphile_worker.sql.events import NewEvent
from tests.browser import showcase

pytestmark = pytest.mark.django_db(transaction=True)

# SCREENSHOTS=docs/_static stores the screenshots for the documentation.
SCREENSHOTS = os.environ.get("SCREENSHOTS")


def take_screenshot(page: Any, name: str) -> None:
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"admin-{name}.png", full_page=True)


def test_night__is_listed_renewed_and_dismissed(open_page: Callable[..., Any], worker_schema: str) -> None:
    showcase.fill_events(worker_schema)
    page = open_page("event/", viewport={"width": 1360, "height": 880})
    lost = "Worker lost: worker-c (no heartbeat for 1 min 2 s). 7 jobs were returned by worker-b."
    page.wait_for_selector(f"text={lost}")
    take_screenshot(page, "events")
    page.evaluate("document.querySelector('#gw-interval').add(new Option('often', '0.2'))")
    page.select_option("#gw-interval", "0.2")
    with connection.cursor() as cursor:
        event = NewEvent(kind="schedule_paused", subject="just now", severity=1)
        events.add(cursor, event, schema=worker_schema)
    page.wait_for_selector("text=Schedule paused: just now.")
    page.click("nav.gw-tabs >> text=Problems")
    page.wait_for_selector(f"text={lost}")
    assert page.locator("#gw-events tbody tr").count() == 4
    page.click("nav.gw-nav >> text=Overview")
    alarm = page.locator(".gw-problem", has_text="Worker lost: worker-c")
    alarm.locator("text=Dismiss").click()
    page.wait_for_selector("text=1 event dismissed.")
    assert alarm.count() == 0
    expect(page.locator(".gw-dismiss")).to_have_count(3)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone__shows_events_as_cards(open_page: Callable[..., Any], worker_schema: str, scheme: str) -> None:
    showcase.fill_events(worker_schema)
    page = open_page("event/", viewport={"width": 390, "height": 844}, color_scheme=scheme)
    for path in ("event/", "overview/", "jobqueue/", "schedule/"):
        page.goto(path)
        take_screenshot(page, f"{path[:-1]}-phone-{scheme}")
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
