"""The bar of ``{% job_progress %}`` and the history in Chromium, under a strict content security policy."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from playwright.sync_api import expect

from tests.support.factories import make_job, minutes_ago
from tests.support.history import make_attempt
from tests.support.operating import execute
from tests.support.results import store_result

pytestmark = pytest.mark.django_db(transaction=True)

OpenPage = Callable[..., Any]
SCREENSHOTS = os.environ.get("SCREENSHOTS")
DESKTOP = {"width": 1360, "height": 880}


def take_screenshot(page: Any, name: str) -> None:
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"admin-{name}.png")


def report(job_id: int, done: int, message: str) -> None:
    execute(
        "insert into {schema}._private_progress values (%s, 1, %s, 7, %s, now())"
        " on conflict (job_id) do update set done = excluded.done, message = excluded.message",
        [job_id, done, message],
    )


@pytest.fixture
def running(site: Any, settings: Any) -> int:
    settings.ROOT_URLCONF = "tests.browser.progress_site"
    job_id = make_job("export", locked_by="django-worker-1/1", attempts=1)
    report(job_id, 2, "page 2 of 7")
    return job_id


def test_bar__moves_by_itself_and_loads_the_page_again_at_the_end(
    running: int, open_page: OpenPage, worker_schema: str
) -> None:
    page = open_page(f"/export/{running}/")
    assert page.inner_text(".gw-progress-message") == "page 2 of 7"
    assert page.get_attribute(".gw-progress-bar", "value") == "28"
    report(running, 5, "page 5 of 7")
    page.wait_for_selector("text=page 5 of 7")
    page.wait_for_function("document.querySelector('.gw-progress-bar').value === 71")
    take_screenshot(page, "bar")
    with connection.cursor() as cursor:
        store_result(cursor, running, worker_schema, task="export", value={"pages": 7})
    execute("delete from {schema}._private_jobs where id = %s", [running])
    page.wait_for_selector("#done")
    assert page.inner_text("#done") == "7 pages"
    assert page.inner_text(".gw-progress-status") == "Finished"
    assert page.query_selector("[data-gw-progress]") is None, "the page does not load itself again"


def test_bar__moves_without_any_script(running: int, open_page: OpenPage) -> None:
    page = open_page(f"/export/{running}/", java_script_enabled=False)
    frame = page.frame_locator("iframe")
    assert frame.locator(".gw-progress-message").inner_text() == "page 2 of 7"
    report(running, 6, "page 6 of 7")
    frame.locator("text=page 6 of 7").wait_for()


def test_job_page__shows_the_progress_while_it_runs(running: int, open_page: OpenPage) -> None:
    page = open_page(f"job/{running}/change/", viewport=DESKTOP)
    assert "28 %" in page.inner_text(".gw-status")
    page.evaluate("document.querySelector('#gw-interval').add(new Option('often', '0.2'))")
    page.select_option("#gw-interval", "0.2")
    report(running, 7, "page 7 of 7")
    page.wait_for_selector("text=page 7 of 7")
    take_screenshot(page, "progress-of-a-job")
    page.select_option("#gw-interval", "0")


def test_history__answers_what_happened_to_order_4711(
    site: Any, settings: Any, open_page: OpenPage, worker_schema: str
) -> None:
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "HISTORY": 86_400 * 30}
    error = "ConnectionError: the mail server is away\n\nTraceback (most recent call last):\nConnectionError"
    tuesday = minutes_ago(60 * 24 * 3)
    with connection.cursor() as cursor:
        make_attempt(cursor, worker_schema, 80, task_identifier="send_receipt", payload={"order": 17})
        for attempt in (1, 2):
            columns = {"outcome": 2, "error": error} if attempt == 1 else {}
            make_attempt(
                cursor, worker_schema, 81, attempt=attempt, task_identifier="send_receipt", queue_name="mail",
                payload={"order": 4711}, ended_at=tuesday, **columns,
            )  # fmt: skip
    page = open_page("pastattempt/", viewport=DESKTOP)
    page.fill("#gw-q", "4711")
    page.fill("#gw-day", tuesday.date().isoformat())
    page.press("#gw-day", "Enter")
    expect(page.locator("#gw-history tbody tr")).to_have_count(2)
    page.set_viewport_size({"width": 1360, "height": 560})
    take_screenshot(page, "history")
    page.locator(".gw-id").first.click()
    page.wait_for_selector("text=History of job 81")
    assert "the mail server is away" in page.inner_text(".gw-page")
    take_screenshot(page, "history-of-a-job")
