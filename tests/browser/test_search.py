"""The search of the jobs in Chromium: completion, keyboard, questions, and what the page offers."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from django_graphile_worker.models import Job
from tests.browser.test_admin import OpenPage

pytestmark = pytest.mark.django_db(transaction=True)
WIDE = {"width": 1440, "height": 900}


def test_completion__works_with_the_keyboard_and_the_mouse(open_page: OpenPage) -> None:
    page = open_page("job/", viewport=WIDE)
    box, options = page.locator("#gw-q"), page.locator("#gw-completions [role=option]")
    box.press_sequentially("que")
    expect(options.first).to_contain_text("queue:")
    expect(box).to_have_attribute("aria-expanded", "true")
    box.press("ArrowDown")
    expect(box).to_have_attribute("aria-activedescendant", "gw-completion-0")
    expect(options.first).to_have_attribute("aria-selected", "true")
    box.press("Enter")
    # The name of a condition is completed by its values.
    expect(box).to_have_value("queue:")
    expect(options.first).to_contain_text("queue:warehouse")
    expect(options.first).to_contain_text("12 jobs")
    box.press("ArrowDown")
    box.press("Tab")
    expect(box).to_have_value("queue:warehouse ")
    expect(box).to_be_focused()
    box.press_sequentially("OR -(task:char")
    expect(options.first).to_contain_text("task:charge_card")
    expect(options.first).to_contain_text("12 jobs")
    box.press("Escape")
    expect(page.locator("#gw-completions")).to_be_hidden()
    expect(box).to_have_value("queue:warehouse OR -(task:char")
    box.fill("charge")
    expect(options.filter(has_text="task:charge_card")).to_be_visible()
    options.filter(has_text="task:charge_card").click()
    expect(box).to_have_value("task:charge_card ")
    box.press("Enter")
    expect(page.locator("#gw-jobs tbody tr")).to_have_count(12)


def test_search__asks_about_what_it_does_not_know_and_finds_jobs_on_every_tab(open_page: OpenPage) -> None:
    page = open_page("job/?q=charge", viewport=WIDE)
    expect(page.locator("#gw-jobs tbody tr")).to_have_count(12)
    failed = Job.objects.get(task__identifier="charge_card", attempts=25).pk
    page.goto(f"job/?state=ready&q=%23{failed}")
    expect(page.locator(".gw-empty")).to_contain_text(re.compile(f"Job #{failed} is in the state"))
    page.click("text=Show it")
    expect(page.locator("#gw-jobs tbody tr")).to_have_count(1)
    page.goto("job/?q=chrage")
    question = page.locator(".gw-question")
    expect(question).to_contain_text("No task, queue, key or flag has “chrage” in its name.")
    question.get_by_role("link", name="task:charge_card").click()
    expect(page.locator("#gw-jobs tbody tr")).to_have_count(12)
    page.goto("job/?q=provider")
    page.get_by_role("link", name="Search error texts").click()
    expect(page.locator("#gw-jobs tbody tr")).to_have_count(9)
    expect(page.locator(".gw-term")).to_contain_text("error:provider")
    page.goto("job/?q=task:print_invoice OR queue:warehouse")
    expect(page.locator(".gw-term")).to_have_count(2)
    expect(page.locator("#gw-jobs tbody tr")).to_have_count(16)
