"""The pictures of the documentation. SCREENSHOTS=docs/_static stores them there."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker.admin.jobs import bulk_action
from django_graphile_worker.models import Job
from django_graphile_worker.sql.job_actions import bulk_steps
from tests.browser import showcase
from tests.browser.conftest import PHONE, OpenPage
from tests.support.factories import make_failed_job
from tests.support.history import make_attempt

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("showcase_data"),
    pytest.mark.chaos,
]

# The address of each page, and the height of its picture.
PICTURES = {
    "overview": ("overview/", 1240),
    "task": ("overview/?task=charge_card", 1180),
    "jobs": ("job/?state=retrying", 760),
    "errors": ("errorgroup/", 550),
    "schedules": ("schedule/", 900),
    "workers": ("worker/", 580),
    "queues": ("jobqueue/", 420),
    "limits": ("limitkey/", 730),
}
WIDTH = 1360


@pytest.fixture
def take(tmp_path: Path) -> Any:
    """Return a function that takes a picture of a page, or of an element."""
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    return lambda page, name, **options: page.screenshot(path=folder / f"admin-{name}.png", **options)


def open_wide(open_page: OpenPage, path: str, height: int, **options: Any) -> Any:
    """Open a page without its sidebar, so that it has more room."""
    page = open_page(path, viewport={"width": WIDTH, "height": height}, **options)
    page.evaluate("localStorage.setItem('django.admin.navSidebarIsOpen', 'false')")
    page.reload()
    return page


def test_pages(open_page: OpenPage, take: Any) -> None:
    page = open_wide(open_page, "overview/", 880)
    failed = Job.objects.get(task__identifier="charge_card", attempts=25).pk
    for name, (path, height) in (PICTURES | {"job": (f"job/{failed}/change/", 820)}).items():
        page.set_viewport_size({"width": WIDTH, "height": height})
        page.goto(path)
        take(page, name)
    page.goto("overview/")
    page.click(".gw-more-charts > summary")
    page.hover("#gw-plot-throughput")
    page.wait_for_selector(".gw-crosshair", state="visible")
    take(page.locator("#gw-charts"), "charts")
    take(open_wide(open_page, "overview/", 1240, color_scheme="dark"), "overview-dark")
    take(open_wide(open_page, "overview/", 940, locale="de"), "overview-german")
    take(open_page("job/?state=failed", viewport=PHONE), "jobs-narrow")


def test_events_and_history(open_page: OpenPage, take: Any, settings: Any, worker_schema: str) -> None:
    showcase.fill_events(worker_schema)
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "HISTORY": 86_400 * 30}
    error = "ConnectionError: the mail server is away\n\nTraceback (most recent call last):\nConnectionError"
    columns: dict[str, Any] = {"task_identifier": "send_receipt", "queue_name": "mail", "payload": {"order": 4711}}
    with connection.cursor() as cursor:
        make_attempt(cursor, worker_schema, 81, attempt=1, outcome=2, error=error, **columns)
        make_attempt(cursor, worker_schema, 81, attempt=2, ended_at=datetime.now(UTC), **columns)
    page = open_wide(open_page, "event/", 880)
    take(page, "events", full_page=True)
    page.set_viewport_size({"width": WIDTH, "height": 560})
    page.goto("pastattempt/?q=4711")
    take(page, "history")


def test_action_on_many_jobs(open_page: OpenPage, take: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    monkeypatch.setattr(bulk_steps, "STEP", 4)
    monkeypatch.setattr(bulk_action, "MAX_REQUEST_TIME", 1.5)
    monkeypatch.setattr(bulk_action, "monotonic", lambda: next(clock))
    for _ in range(10):
        make_failed_job("many", error="KeyError: 'x'")
    page = open_wide(open_page, "job/?state=failed&q=task:many", 340)
    page.check("[data-select-all-matches]")
    page.select_option("#gw-action", "retry")
    page.click("button:has-text('Go')")
    page.click("button:has-text('Retry')")
    page.wait_for_selector("text=The changes so far stay")
    take(page, "progress")
    page.wait_for_selector(".messagelist")


def test_schedule(open_page: OpenPage, take: Any) -> None:
    page = open_wide(open_page, "schedule/add/", 900)
    page.fill("#id_starts_at", "2030-03-09T00:00:00")
    page.fill("#id_time_zone", "America/New_York")
    page.fill("#id_cron", "30 2 * * *")
    page.wait_for_selector(".gw-clock-change")
    take(page.locator(".gw-schedule-when"), "schedule")
