"""The search of the jobs in Chromium: suggestions, errors, terms, and jobs on another tab."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from django_graphile_worker.models import Job
from tests.browser.test_admin import DESKTOP, OpenPage

pytestmark = pytest.mark.django_db(transaction=True)


def test_search__suggests_tasks_and_says_what_is_wrong(open_page: OpenPage) -> None:
    page = open_page("job/", viewport=DESKTOP)
    suggested = page.eval_on_selector_all(
        "#gw-q ~ datalist option, #gw-suggestions option", "all => all.map(o => o.value)"
    )
    assert "task:charge_card" in suggested
    page.fill("#gw-q", "task:chrage_card")
    page.press("#gw-q", "Enter")
    expect(page.locator(".gw-notice [role=alert], [role=alert].gw-notice")).to_contain_text("Did you mean charge_card?")
    expect(page.locator(".gw-empty")).to_contain_text("Nothing is shown until the search is corrected.")
    page.fill("#gw-q", "task:charge_card -state:failed")
    page.press("#gw-q", "Enter")
    rows = page.locator("#gw-jobs tbody tr")
    expect(rows.first).to_be_visible()
    number = rows.count()
    page.click(".gw-term:has-text('-state:failed')")
    expect(page.locator(".gw-term")).to_have_count(1)
    assert rows.count() > number


def test_job_on_another_tab__is_found(open_page: OpenPage) -> None:
    failed = Job.objects.get(task__identifier="charge_card", attempts=25).pk
    page = open_page(f"job/?state=ready&q=%23{failed}", viewport=DESKTOP)
    expect(page.locator(".gw-empty")).to_contain_text(re.compile(f"Job #{failed} is in the state"))
    page.click("text=Show it")
    expect(page.locator("#gw-jobs tbody tr")).to_have_count(1)
