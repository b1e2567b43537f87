"""axe-core and our own checks of contrast and room, in one visit of every page of the admin in Django's theme.

axe-core runs on each page, light on a desktop. The checks of ``looks`` run there, too, and dark on a phone. They are
faster than axe-core, and compare the colours of all texts, which axe-core is therefore not asked to do. The pages are
in German and French, whose words are longer than those of English.
"""

from __future__ import annotations

import json

import pytest

from tests.browser import every_page, looks, showcase
from tests.browser.conftest import DESKTOP, PHONE, OpenPage
from tests.support.admin_pages import BASE
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.schedule_rows import make_schedule

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("showcase_data")]

LAPTOP = {"width": 1024, "height": 900}
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RUN = """async tags => {
    const rules = {'color-contrast': {enabled: false}};
    const found = await axe.run({runOnly: tags, resultTypes: ['violations'], rules});
    return found.violations.map(each => `${each.id}: ${each.nodes.map(node => node.html.slice(0, 120)).join(' | ')}`);
}"""
OPEN = "document.querySelectorAll('#gw-schedules details').forEach(each => { each.open = true; })"
# Tables that are wider than their place, names that are no wider than a few letters or higher than a few lines, and
# words that are cut.
NARROW = """() => [
    ...[...document.querySelectorAll('.gw-scroll')]
        .filter(node => node.checkVisibility() && node.scrollWidth > node.clientWidth + 1),
    ...[...document.querySelectorAll('.gw-name')]
        .filter(node => node.checkVisibility() && node.getBoundingClientRect().width < 90),
    ...[...document.querySelectorAll('.gw-error-name')].filter(node => node.offsetHeight > 100),
    ...[...document.querySelectorAll('.gw-button, .gw-tab, .gw-badge, .gw-nav a, .gw-tile-label, tbody th, dt')]
        .filter(node => node.checkVisibility() && node.scrollWidth > node.clientWidth + 1
            && getComputedStyle(node).display !== 'inline'),
].map(node => `no room: ${node.className} ${node.textContent.trim().slice(0, 40)}`)"""
# Whether the names of the pages, and the control beside them, are in one line.
IN_LINE = """() => {
    const all = [...document.querySelectorAll('.gw-nav a, .gw-refresh')].map(node => node.getBoundingClientRect());
    return Math.max(...all.map(box => box.top)) < Math.min(...all.map(box => box.bottom));
}"""
HEADINGS = [
    ("de", "Übersicht"),
    pytest.param("fr", "Vue d\N{RIGHT SINGLE QUOTATION MARK}ensemble", marks=pytest.mark.chaos),
]


@pytest.fixture(scope="module")
def axe_script() -> str:
    base = pytest.importorskip("axe_playwright_python.base", reason="axe-playwright-python is not installed")
    return str(base.AXE_SCRIPT)


@pytest.mark.parametrize(("language", "heading"), HEADINGS)
def test_every_page__passes_axe_and_has_contrast_and_room(
    open_page: OpenPage, axe_script: str, worker_schema: str, language: str, heading: str
) -> None:
    _make_long_names()
    page = open_page("overview/", viewport=DESKTOP, color_scheme="dark", locale=language)
    assert page.evaluate("getComputedStyle(document.querySelector('.gw-page')).colorScheme") == "dark"
    wrong = {"dark machine": found} if (found := looks.problems(page)) else {}
    assert (page.inner_text("h1"), page.evaluate("document.documentElement.lang")) == (heading, language)
    assert page.evaluate(IN_LINE)
    page.emulate_media(color_scheme="light")
    for name in every_page.visit(page, every_page.addresses()):
        found = looks.problems(page) + page.evaluate(NARROW)
        page.evaluate(OPEN)
        # In the name of the browser's tools, which the policy of the page does not bind.
        page.evaluate(axe_script)
        found += page.evaluate(RUN, TAGS)
        if name in (f"{BASE}job/", f"{BASE}schedule/"):
            page.set_viewport_size(LAPTOP)
            found += [f"laptop: {each}" for each in page.evaluate(NARROW)]
        page.set_viewport_size(PHONE)
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        found += [f"phone: {each}" for each in looks.problems(page) + page.evaluate(NARROW)]
        if found:
            wrong[name] = found
        if name == f"{BASE}overview/":
            # Not before: the overview shows at most three problems, and these would be alarms.
            showcase.fill_events(worker_schema)
    assert wrong == {}, json.dumps(wrong, indent=1)


def _make_long_names() -> None:
    name = "x" * 128
    make_failed_job(name, error=f"{'Y' * 118}: {'z' * 400}", queue_name=name, key="k" * 300)
    make_job(name, queue_name=name, run_at=minutes_ago(1))
    make_schedule(
        "<b>\u202eevil\u202c</b> " + "w" * 180, "refresh_search_index", description="\u05e9\u05dc\u05d5\u05dd " * 40
    )
