"""The pages in a browser that runs no scripts."""

from __future__ import annotations

import pytest

from django_graphile_worker.models import Job
from tests.browser.conftest import PHONE, OpenPage
from tests.support.factories import make_failed_job
from tests.support.schedule_rows import make_schedule

pytestmark = pytest.mark.django_db(transaction=True)


def test_pages__work_without_scripts(open_page: OpenPage) -> None:
    """Buttons take the place of scripts, and style sheets alone open menus and show fields."""
    for _ in range(4):
        make_failed_job("print_invoice", error="NoPrinter: no")
    make_schedule("Exchange rates", "refresh_search_index", interval="15 minutes")
    page = open_page("job/?state=failed&q=task:print_invoice", viewport=PHONE, java_script_enabled=False)
    assert not page.is_visible("#gw-interval")
    page.check("[data-select-all-matches]")
    page.select_option("#gw-action", "retry")
    page.click("button:has-text('Go')")
    page.click("button:has-text('Retry')")
    assert "4 jobs will be retried now." in page.inner_text(".messagelist")
    assert Job.objects.filter(attempts=0).count() == 4

    page.goto("job/add/")
    page.fill("#id_task", "move_stock")
    page.fill("#id_payload", "{")
    page.click("[data-describe-task]")
    assert "In a named queue" in page.inner_text("#gw-task-facts")
    assert page.input_value("#id_payload") == "{"
    assert page.query_selector(".errorlist") is None

    page.goto("schedule/")
    row = "tr:has-text('Exchange rates')"
    page.click(f"{row} .gw-menu-button")
    page.click(f"{row} button:has-text('Pause…')")
    assert "Pause Exchange rates?" in page.inner_text(".gw-page")
    page.goto("schedule/add/")
    page.check("input[value=interval]")
    assert not page.is_visible("#id_cron")
    page.fill("#id_interval", "every 10 s")
    page.click("[name=preview]")
    assert "Every 10 seconds" in page.inner_text("#gw-preview")

    page.goto("overview/")
    assert page.locator(".gw-readout").count() == 0
    page.click("#gw-chart-throughput summary")
    assert page.locator("#gw-chart-throughput tbody tr").nth(59).is_visible()
