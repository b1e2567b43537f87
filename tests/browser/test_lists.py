"""The list of jobs in Chromium: selecting, sorting, the keyboard, and a phone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.test_admin import DESKTOP, PHONE, refresh_often
from tests.support.factories import make_job

pytestmark = pytest.mark.django_db(transaction=True)

OpenPage = Callable[..., Any]


def test_jobs__are_selected_by_range_page_and_search(open_page: OpenPage) -> None:
    """A list that is empty at first gets its rows, its boxes and its bar by the refresh."""
    page = open_page("job/?q=task:fresh", viewport=DESKTOP)
    bar, selected = page.locator(".gw-actions"), page.locator("[data-selected]")
    assert not bar.is_visible(), "there is nothing to select"
    ids = [make_job("fresh", {"number": number}) for number in range(6)]
    refresh_often(page)
    page.wait_for_selector(f"text=#{ids[-1]}")
    page.select_option("#gw-interval", "0")
    assert bar.is_visible()
    boxes = page.locator("input[name=id]")
    boxes.nth(1).click()
    boxes.nth(4).click(modifiers=["Shift"])
    assert selected.inner_text() == "4 selected"
    assert [box.is_checked() for box in boxes.all()] == [False, True, True, True, True, False]
    boxes.nth(2).click()
    boxes.nth(3).click(modifiers=["Shift"])
    assert selected.inner_text() == "2 selected"
    page.check(".gw-select-page input")
    assert selected.inner_text() == "6 selected"
    assert page.is_checked("th [data-select-page]")
    page.check("[data-select-all-matches]")
    assert selected.inner_text() == "all selected"
    assert boxes.nth(0).is_disabled()
    page.uncheck("[data-select-all-matches]")
    page.uncheck(".gw-select-page input")
    assert selected.inner_text() == ""

    assert '{"number": 5}' in page.inner_text("#gw-jobs")
    assert page.locator("#gw-jobs th a").count() == 0, "no index has the jobs of a task in any state in one order"
    page.goto("job/?state=ready&q=task:fresh")
    page.click("#gw-jobs th a:has-text('Run at')")
    page.wait_for_selector("th[aria-sort=ascending] a:has-text('Run at')")
    assert page.locator(".gw-id").nth(0).inner_text() == f"#{ids[0]}"
    page.click("text=Columns and page size")
    page.check(".gw-choice:has-text('Created') input")
    page.uncheck(".gw-choice:has-text('Payload') input")
    page.select_option("select[name=size]", "25")
    page.click("button:has-text('Apply')")
    page.wait_for_selector("#gw-jobs th:has-text('Created')")
    assert page.locator("#gw-jobs th:has-text('Payload')").count() == 0
    with page.expect_download() as download:
        page.click(".gw-export a:has-text('CSV')")
    assert Path(download.value.path()).read_text().count("fresh") == 6
    assert download.value.suggested_filename.endswith(".csv")


def test_view__is_saved_and_deleted(open_page: OpenPage) -> None:
    page = open_page("job/?state=failed&q=task:print_invoice", viewport=DESKTOP)
    page.click("text=Save this view…")
    page.fill("#id_name", "Invoices <b>")
    page.click("button:has-text('Save')")
    link = page.locator(".gw-saved-views a:has-text('Invoices <b>')")
    assert link.get_attribute("aria-current") == "page"
    page.goto("job/")
    link.click()
    page.wait_for_selector(".gw-term:has-text('task:print_invoice')")
    page.click("text=Save or edit views…")
    page.click("button:has-text('Delete')")
    assert "Deleted the view" in page.inner_text(".messagelist")


def test_keyboard__moves_selects_opens_and_helps(open_page: OpenPage) -> None:
    ids = [make_job("keys") for _ in range(3)]
    page = open_page("job/?q=task:keys", viewport=DESKTOP)
    focused = "document.activeElement.textContent.trim()"
    for key in "jjjkx":
        page.keyboard.press(key)
    assert page.evaluate(focused) == f"#{ids[1]}"
    assert page.locator("input[name=id]:checked").get_attribute("value") == str(ids[1])
    page.keyboard.press("Shift+?")
    dialog = page.locator("#gw-shortcuts")
    assert dialog.is_visible()
    assert "next row, previous row" in dialog.inner_text()
    page.keyboard.press("j")
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert page.evaluate(focused) == f"#{ids[1]}", "the dialog kept the keys to itself"
    page.keyboard.press("/")
    page.keyboard.type("jx")
    assert page.input_value("#gw-q") in ("jx", "task:keysjx")
    assert page.locator("input[name=id]:checked").count() == 1, "typing is no shortcut"
    page.locator("body").click(position={"x": 1, "y": 1})
    page.keyboard.press("j")
    page.keyboard.press("o")
    page.wait_for_selector(f"h1:has-text('#{ids[0]}')")

    page.goto("job/?q=task:keys")
    page.keyboard.press("Shift+?")
    page.uncheck("[data-shortcuts-on]")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert "#" not in page.evaluate(focused)[:1], "shortcuts are off"
    page.focus(".gw-skip")
    page.keyboard.press("Enter")
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("Boolean(document.activeElement.closest('#gw-jobs'))")


def test_phone__has_the_actions_within_reach(open_page: OpenPage) -> None:
    page = open_page("job/?state=ready", viewport=PHONE, has_touch=True)
    boxes = {
        name: page.locator(selector).bounding_box()
        for name, selector in {
            "bar": ".gw-actions",
            "page": ".gw-select-page",
            "all": ".gw-select-all",
            "action": "#gw-action",
            "go": ".gw-actions button",
        }.items()
    }
    assert boxes["bar"]["y"] + boxes["bar"]["height"] <= PHONE["height"] + 1, "the bar is on the screen"
    assert boxes["bar"]["height"] < PHONE["height"] / 5
    for name in ("page", "all", "action", "go"):
        assert boxes[name]["height"] >= 44, name
        assert boxes[name]["x"] + boxes[name]["width"] <= PHONE["width"], name
    page.tap(".gw-select-all")
    assert page.inner_text("[data-selected]") == "all selected"
    page.select_option("#gw-action", index=1)
    page.tap(".gw-actions button")
    page.wait_for_selector("button[type=submit]")
