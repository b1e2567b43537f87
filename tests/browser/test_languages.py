"""The pages in other languages, whose words are longer, in Chromium."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from django_graphile_worker.admin.page_order import PAGES
from django_graphile_worker.models import Job

pytestmark = pytest.mark.django_db(transaction=True)

OpenPage = Callable[..., Any]
SCREENSHOTS = os.environ.get("SCREENSHOTS")
PHONE = {"width": 390, "height": 800}
DESKTOP = {"width": 1360, "height": 1180}
LAPTOP = {"width": 1440, "height": 900}
HEADINGS = {"de": "Übersicht", "fr": "Vue d\N{RIGHT SINGLE QUOTATION MARK}ensemble"}


def addresses() -> list[str]:
    failed = Job.objects.get(task__identifier="charge_card", attempts=25).pk
    pages = [f"{page._meta.model_name}/" for page in PAGES]
    return [*pages, "job/?state=failed", f"job/{failed}/change/", "job/add/?task=move_stock"]


@pytest.mark.parametrize("language", HEADINGS)
def test_pages__have_room_for_longer_words(open_page: OpenPage, language: str) -> None:
    page = open_page("overview/", viewport=PHONE, locale=language)
    assert page.inner_text("h1") == HEADINGS[language]
    for path in addresses():
        page.goto(path)
        assert page.evaluate("document.documentElement.lang") == language
        assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"], path
        cut = page.eval_on_selector_all(
            ".gw-button, .gw-tab, .gw-badge, .gw-nav a, .gw-tile-label, tbody th, dt",
            "all => all.filter(node => node.checkVisibility() && node.scrollWidth > node.clientWidth + 1"
            " && getComputedStyle(node).display !== 'inline').map(node => node.textContent)",
        )
        assert cut == [], path
    page.set_viewport_size(LAPTOP)
    page.goto("overview/")
    # The names of the pages, and the control beside them, are in one line.
    are_in_line = page.eval_on_selector_all(
        ".gw-nav a, .gw-refresh",
        "all => { const boxes = all.map(node => node.getBoundingClientRect());"
        " return Math.max(...boxes.map(box => box.top)) < Math.min(...boxes.map(box => box.bottom)); }",
    )
    assert are_in_line
    if SCREENSHOTS and language == "de":
        desktop = open_page("overview/", viewport={"width": 1360, "height": 940}, locale=language)
        # Without the sidebar, so that the page has more room.
        desktop.evaluate("localStorage.setItem('django.admin.navSidebarIsOpen', 'false')")
        desktop.reload()
        desktop.screenshot(path=Path(SCREENSHOTS) / "admin-overview-german.png")


def test_add_form__describes_the_chosen_task_and_keeps_the_rest(open_page: OpenPage) -> None:
    page = open_page("job/add/", viewport=DESKTOP, locale="de")
    assert not page.is_visible("[data-describe-task]")
    page.fill("#id_payload", '{"shelf": "A"}')
    page.fill("#id_task", "move_stock")
    page.press("#id_task", "Tab")
    page.wait_for_selector("#gw-task-facts :text('In a named queue')")
    assert "Warteschlange\nwarehouse" in page.inner_text("#gw-task-facts dl")
    assert page.input_value("#id_payload") == '{"shelf": "A"}'
    page.fill("#id_task", "")
    page.press("#id_task", "Tab")
    page.wait_for_selector("#gw-task-facts", state="hidden")


def test_add_form__describes_the_chosen_task_without_scripts(open_page: OpenPage) -> None:
    page = open_page("job/add/", viewport=PHONE, java_script_enabled=False)
    page.fill("#id_task", "move_stock")
    page.fill("#id_payload", "{")
    page.click("[data-describe-task]")
    assert "In a named queue" in page.inner_text("#gw-task-facts")
    assert page.input_value("#id_payload") == "{"
    assert page.query_selector(".errorlist") is None
