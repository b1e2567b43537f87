"""axe-core and our own checks of contrast, over every page of the admin in Django's theme.

axe-core runs on each page, light on a desktop. The checks of ``looks`` run there, too, and dark on a phone: they are
faster than axe-core.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser import every_page, looks
from tests.support.admin_pages import BASE

pytestmark = pytest.mark.django_db(transaction=True)

OpenPage = Callable[..., Any]
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RUN = """async tags => {
    const found = await axe.run({runOnly: tags, resultTypes: ['violations']});
    return found.violations.map(each => `${each.id}: ${each.nodes.map(node => node.html.slice(0, 120)).join(' | ')}`);
}"""


@pytest.fixture(scope="module")
def axe_script() -> str:
    base = pytest.importorskip("axe_playwright_python.base", reason="axe-playwright-python is not installed")
    return str(base.AXE_SCRIPT)


def test_every_page__passes_axe_and_has_enough_contrast(open_page: OpenPage, axe_script: str) -> None:
    page = open_page("overview/", viewport=DESKTOP, color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.querySelector('.gw-page')).colorScheme") == "dark"
    wrong = {"dark machine": found} if (found := looks.problems(page)) else {}
    for address in [*every_page.addresses(), *(BASE + path for path in every_page.LISTS)]:
        page.set_viewport_size(DESKTOP)
        page.goto(address)
        # In the name of the browser's tools, which the policy of the page does not bind.
        page.evaluate(axe_script)
        page.evaluate(looks.SHORTEN)
        for scheme, viewport in (("light", DESKTOP), ("dark", PHONE)):
            page.set_viewport_size(viewport)
            page.evaluate("scheme => { document.documentElement.dataset.theme = scheme; }", scheme)
            found = looks.problems(page)
            if viewport is DESKTOP:
                found += page.evaluate(RUN, TAGS)
            if found:
                wrong[f"{address} {scheme} {viewport['width']}"] = found
    assert wrong == {}, json.dumps(wrong, indent=1)
