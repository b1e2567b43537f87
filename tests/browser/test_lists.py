"""The list of jobs in Chromium: selecting, the room that it has on a phone, and text from right to left."""

from __future__ import annotations

import pytest

from tests.browser.conftest import DESKTOP, PHONE, OpenPage, refresh_often
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.operating import execute

pytestmark = pytest.mark.django_db(transaction=True)


def test_jobs__are_selected_by_range_page_and_search(open_page: OpenPage) -> None:
    """A list that is empty at first gets its rows, its boxes and its bar by the refresh."""
    page = open_page("job/?q=task:unseen", viewport=DESKTOP)
    bar, selected = page.locator(".gw-actions"), page.locator("[data-selected]")
    assert not bar.is_visible(), "there is nothing to select"
    ids = [make_job("unseen", {"number": number}) for number in range(6)]
    refresh_often(page)
    page.wait_for_selector(f"text=#{ids[-1]}")
    page.select_option("#gw-interval", "0")
    assert bar.is_visible()
    boxes = page.locator("td.gw-check input")
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


def test_phone__has_the_actions_within_reach(open_page: OpenPage) -> None:
    for _ in range(20):
        make_job("send_receipt", {"order": 1200})
    page = open_page("job/?state=ready", viewport=PHONE, has_touch=True)
    bar = page.locator(".gw-actions").bounding_box()
    assert bar["height"] < PHONE["height"] / 12, "without a selection, it is one row"
    assert not page.is_visible("#gw-action")
    page.tap("td.gw-check input >> nth=0")
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


def test_cells__have_the_room_they_need(open_page: OpenPage) -> None:
    """A bar with its numbers stands beside its state, and names and errors take the width of a card."""
    ids = [make_job("carried", {"n": 1}, locked_by="worker-1", locked_at=minutes_ago(1), attempts=1) for _ in range(2)]
    for job_id in ids:
        execute(
            "insert into {schema}._private_progress values (%s, 1, 45, 200, 'page 45', now() - interval '9 seconds')",
            [job_id],
        )
    make_failed_job("carried", error="shop.printing.NoPrinter: There is no printer in this room.")
    page = open_page("job/?q=task:carried", viewport=PHONE, has_touch=True)
    badge = page.locator(".gw-state-running").first.bounding_box()
    assert badge["height"] < 30, "the badge is not as high as the bar beside it"
    title = page.locator("td.gw-wide-name").first.bounding_box()
    assert title["width"] > PHONE["width"] * 0.8
    page.set_viewport_size(DESKTOP)
    number = page.locator(".gw-progress-number").first
    assert number.bounding_box()["height"] < 25, "the numbers are on one line"


def test_text_from_right_to_left__does_not_move_the_text_beside_it(open_page: OpenPage) -> None:
    """Beside an Arabic name, a number or a value of the payload must not change sides."""
    job_id = make_failed_job("إرسال", payload={"اسم": "محمد"}, error="ValueError: لا")
    page = open_page(f"job/{job_id}/change/", viewport=DESKTOP)
    key, value = (page.locator(selector).bounding_box() for selector in (".gw-json-key", ".gw-json-string"))
    assert key["x"] + key["width"] <= value["x"] + 1
    number = page.evaluate(
        """() => {
            const title = document.querySelector('.gw-heading h1'), range = document.createRange();
            range.selectNode(title.lastChild);
            return [title.querySelector('bdi').getBoundingClientRect().right, range.getBoundingClientRect().left];
        }"""
    )
    assert number[0] <= number[1] + 1
