"""The pages of the admin in other themes, with their real packages, in light and dark, on a desktop and on a phone.

A site with another theme is a process of its own. THEME_PICTURES=folder stores a picture of each page.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import every_page, looks
from tests.browser.conftest import session_cookie
from tests.browser.themes.server import running_site
from tests.support.admin_pages import BASE

pytestmark = pytest.mark.django_db(transaction=True)

DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
PICTURES = os.environ.get("THEME_PICTURES")

# How each theme says that it is light or dark: a script that gets the scheme.
BY_DATA_THEME = "scheme => { document.documentElement.dataset.theme = scheme; }"
BY_CLASS = "scheme => { document.documentElement.className = scheme; }"
BY_BOOTSTRAP = "scheme => { document.documentElement.dataset.bsTheme = scheme; }"
THEMES = {
    "unfold": BY_CLASS,
    "jazzmin": BY_BOOTSTRAP,
    "grappelli": BY_DATA_THEME,
}


@pytest.fixture(params=THEMES)
def theme(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"django-{name} is not installed")
    return name


@pytest.fixture
def open_theme(
    theme: str, browser: Any, showcase_data: None, subprocess_environment: dict[str, str]
) -> Iterator[Callable[[], Any]]:
    """Return a function that opens a logged-in browser page on the site with the theme."""
    with running_site(f"tests.browser.themes.{theme}_site", subprocess_environment) as address:
        contexts = []

        def open_() -> Any:
            # The machine is dark, so that a light page shows that it follows the theme.
            context = browser.new_context(base_url=address, viewport=DESKTOP, color_scheme="dark")
            context.add_cookies([{"name": "sessionid", "value": session_cookie(), "url": address}])
            contexts.append(context)
            page = context.new_page()
            page.set_default_timeout(60_000)
            return page

        yield open_
        for context in contexts:
            context.close()


def test_every_page__looks_right_in_the_theme(theme: str, open_theme: Callable[[], Any]) -> None:
    page = open_theme()
    wrong: dict[str, list[str]] = {}
    for address in _visit_every_page(page):
        for scheme, viewport in (("light", DESKTOP), ("dark", DESKTOP), ("dark", PHONE), ("light", PHONE)):
            page.set_viewport_size(viewport)
            page.evaluate(THEMES[theme], scheme)
            found = looks.problems(page)
            if found:
                wrong[f"{address} {scheme} {viewport['width']}"] = found
            _take_picture(page, theme, address, scheme, viewport)
    if theme == "jazzmin":
        wrong |= _problems_in_a_dark_theme_of_bootswatch(page)
    assert wrong == {}, json.dumps(wrong, indent=1)


def _problems_in_a_dark_theme_of_bootswatch(page: Any) -> dict[str, list[str]]:
    """Choose a theme of Bootswatch that is dark although Bootstrap's attribute says light."""
    # The style sheets of Bootswatch ask another site for their fonts.
    page.route("https://**", lambda route: route.abort())
    page.goto(f"{BASE}overview/")
    page.evaluate(
        """() => new Promise(done => {
            const link = document.getElementById('jazzmin-theme');
            document.documentElement.dataset.bsTheme = 'light';
            link.onload = done;
            link.href = link.dataset.themeBase + '/darkly/bootstrap.min.css';
        })"""
    )
    _take_picture(page, "darkly", "overview", "dark", DESKTOP)
    found = looks.problems(page)
    return {"darkly": found} if found else {}


def _visit_every_page(page: Any) -> Iterator[str]:
    """Open each page, and the pages that are reached by a button, and yield a name for each."""
    for address in every_page.addresses():
        response = page.goto(address, wait_until="domcontentloaded")
        assert response.status == 200, address
        page.wait_for_selector(".gw-page")
        page.evaluate(looks.SHORTEN)
        yield address
        page.set_viewport_size(DESKTOP)
        if page.locator(".gw-heading button.gw-danger, .gw-worker button.gw-danger").count():
            page.locator(".gw-heading button.gw-danger, .gw-worker button.gw-danger").first.click()
            page.wait_for_selector("button.gw-danger-solid")
            yield f"{address} confirmation"
        elif page.locator("#id_payload").count():
            page.fill("#id_payload", "{")
            page.click(".gw-page form button.gw-primary")
            page.wait_for_selector(".errorlist")
            yield f"{address} errors"


def _take_picture(page: Any, theme: str, address: str, scheme: str, viewport: dict[str, int]) -> None:
    if PICTURES:
        name = "".join(letter if letter.isalnum() else "-" for letter in address.removeprefix(BASE))
        path = Path(PICTURES) / f"{theme}-{scheme}-{viewport['width']}-{name.rstrip('-')}.png"
        page.screenshot(path=path, full_page=True)
