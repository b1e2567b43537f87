"""The charts in Chromium: values by mouse, touch and keyboard, axes that can be read, and a refresh that keeps both."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import DESKTOP, OpenPage, refresh_often
from tests.support.operating import execute

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("showcase_data")]

SMALLEST_TEXT = """() => Math.min(...[...document.querySelectorAll(
        '.gw-values span, .gw-times span, .gw-unit, .gw-key')]
    .filter(each => each.textContent.trim() && each.getClientRects().length)
    .map(each => parseFloat(getComputedStyle(each).fontSize)))"""
OVERLAPS = """() => [...document.querySelectorAll('.gw-times')].filter(axis => {
    const boxes = [...axis.querySelectorAll('span')].map(each => each.getBoundingClientRect()).filter(box => box.width);
    const frame = axis.getBoundingClientRect();
    return boxes.some((box, place) => box.right > frame.right + 2 || box.left < frame.left - 2
        || place && box.left < boxes[place - 1].right + 2);
}).length"""


def figures(page: Any, chart: str, row: int) -> list[str]:
    """Return the cells of a row of the table below a chart, which is closed."""
    cells = page.evaluate(
        "([chart, row]) => [...[...document.querySelectorAll(`#gw-chart-${chart} tbody tr`)].at(row).cells]"
        ".map(cell => cell.textContent)",
        [chart, row],
    )
    return [str(cell) for cell in cells]


def box_of(page: Any, chart: str) -> Any:
    """Return where a chart is, after it has been scrolled into view."""
    plot = page.locator(f"#gw-plot-{chart}")
    plot.scroll_into_view_if_needed()
    return plot.bounding_box()


def readout(page: Any) -> str:
    return " ".join(page.inner_text(".gw-readout").split())


def test_crosshair__shows_values_by_mouse_touch_and_keyboard(open_page: OpenPage) -> None:
    page = open_page("overview/", viewport=DESKTOP, has_touch=True)
    page.select_option("#gw-interval", "0")
    box = box_of(page, "throughput")
    page.mouse.move(box["x"] + box["width"] * 30.5 / 60, box["y"] + 40)
    label, succeeded, *_ = figures(page, "throughput", 30)
    assert readout(page).startswith(f"{label} succeeded {succeeded} retrying ")
    line = page.locator(".gw-crosshair").bounding_box()
    assert abs(line["x"] - box["x"] - box["width"] * 30.5 / 60) < 2
    page.mouse.move(5, 5)
    page.wait_for_selector(".gw-readout", state="hidden")

    page.focus("#gw-plot-backlog")
    page.keyboard.press("ArrowLeft")
    assert "(so far)" in readout(page), "the last bucket is not finished"
    page.keyboard.press("ArrowLeft")
    label, ready, *_ = figures(page, "backlog", -2)
    assert readout(page).startswith(f"{label} ready {ready} ")
    assert page.inner_text(".gw-spoken").startswith(f"{label}, ready: {ready}, ")
    assert page.get_attribute(".gw-spoken", "aria-live") == "polite"
    page.keyboard.press("Home")
    assert readout(page).startswith(figures(page, "backlog", 0)[0])
    page.keyboard.press("Escape")
    page.wait_for_selector(".gw-readout", state="hidden")

    page.click(".gw-more-charts > summary")
    box = box_of(page, "added")
    page.touchscreen.tap(box["x"] + box["width"] * 0.5, box["y"] + 30)
    assert readout(page).startswith(figures(page, "added", 30)[0])


def test_refresh__keeps_the_crosshair_and_open_charts_and_renews_their_values(open_page: OpenPage) -> None:
    page = open_page("overview/", viewport=DESKTOP)
    page.evaluate("window.figure = document.querySelector('#gw-charts figure')")
    assert not page.locator("#gw-plot-added").is_visible()
    page.click(".gw-more-charts > summary")
    box = box_of(page, "throughput")
    page.mouse.move(box["x"] + box["width"] * 30.5 / 60, box["y"] + 40)
    refresh_often(page)
    execute("update {schema}._private_statistics set counts[1] = 777777 where kind = 'all'")
    page.wait_for_selector(".gw-readout:has-text('777,777')")
    # The label is read with the table, because the next minute moves both.
    assert readout(page).split()[0] in {figures(page, "throughput", row)[0] for row in (30, 29)}
    assert page.locator("#gw-plot-added").is_visible()
    assert page.evaluate("window.figure.isConnected")
    # The tables are emptied after the test: no request must read them meanwhile.
    page.select_option("#gw-interval", "0")
    page.wait_for_load_state("networkidle")


def test_axes__are_text_that_can_be_read_at_every_width(open_page: OpenPage) -> None:
    page = open_page("overview/?span=week", viewport=DESKTOP)
    page.evaluate("document.querySelector('.gw-more-charts').open = true")
    for width in (1440, 1024, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(SMALLEST_TEXT) >= 11, width
        assert page.evaluate(OVERLAPS) == 0, width
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
